"""Whole programs: each runs on the shim under torch's name and returns the numbers of torch."""

import importlib
import json
import sys
import warnings

import numpy as np
import pytest

from tests.torch.programs import NAMES
from tests.torch.programs.record import STORED, numbers, programs

RECORDED = json.loads(STORED.read_text())


def modules_of_the_shim():
    """The shim's modules under torch's names."""
    for name in ("distributions", "fft", "linalg", "optim", "special", "nn.utils.rnn",
                 "optim.lr_scheduler"):
        importlib.import_module(f"functrans.torch.{name}")
    return {name.removeprefix("functrans."): module for name, module in list(sys.modules.items())
            if name == "functrans.torch" or name.startswith("functrans.torch.")}


@pytest.fixture(scope="module")
def programs_by_name():
    with pytest.MonkeyPatch.context() as patch:
        for name, module in modules_of_the_shim().items():
            patch.setitem(sys.modules, name, module)
        yield dict(programs())
        for name in NAMES:
            patch.delitem(sys.modules, f"tests.torch.programs.{name}")


def flat(x, path=""):
    """(path, number) of the leaves."""
    if isinstance(x, dict | list):
        items = x.items() if isinstance(x, dict) else enumerate(x)
        for k, v in items:
            yield from flat(v, f"{path}/{k}")
    else:
        yield path, x


# of the greatest number of a program, where 1e-12 of it would be too little
WIDER = {
    "chances.beta_and_dirichlet": 1e-8,  # torch's digamma and trigamma are good to 1e-9
    "dynamics.inverse_kinematics": 1e-5,  # hundreds of steps in float32
    "fitting.dynamic_network": 1e-6,  # hundreds of steps in float32
    "fitting.polynomial_by_modules": 1e-5,  # thousands of steps in float32
    "fitting.softmax_regression": 1e-8,  # hundreds of steps in float32
    "functions.legendre": 1e-5,  # thousands of steps in float32
    "operations.entries": 1e-9,  # torch's special functions are good to 1e-10
    "operations.losses": 1e-11,  # small differences of large logarithms
    "probabilities.wishart": 1e-9,  # torch's digamma is good to 1e-10
    "structures.special_functions": 1e-9,  # torch's special functions are good to 1e-10
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_program_has_the_numbers_of_torch(name, programs_by_name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dict(flat(numbers(programs_by_name[name]())))
    expected = dict(flat(RECORDED[name]))
    assert list(found) == list(expected)
    want = np.array(list(expected.values()))
    scale = np.abs(want[np.isfinite(want)]).max(initial=0)
    np.testing.assert_allclose(list(found.values()), want, rtol=0,
                               atol=WIDER.get(name, 1e-12) * scale)


def test_every_program_is_recorded(programs_by_name):
    assert sorted(programs_by_name) == sorted(RECORDED)
