"""All planted errors: slips of a kind that is made, each with tests that must fail for it.

``tests/test_planted_errors.py`` asks whether they can still be planted, and
``python -m tests.planted`` whether the tests still bite.
"""

from tests.planted import compiled, kernels, matrices, sharding, shim, transforms, writing

ERRORS = (
    *transforms.ERRORS, *matrices.ERRORS, *compiled.ERRORS, *shim.ERRORS, *kernels.ERRORS,
    *writing.ERRORS, *sharding.ERRORS,
)

__all__ = ["ERRORS"]
