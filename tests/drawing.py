"""Random numbers for tests: each test draws the same ones, whichever ran before it."""

import numpy as np

_generators = []


def generator(seed):
    """NumPy's generator for a module, which starts anew before each test (``conftest.py``)."""
    made = np.random.default_rng(seed)
    _generators.append((made, made.bit_generator.state))
    return made


def start_anew():
    for made, state in _generators:
        made.bit_generator.state = state
