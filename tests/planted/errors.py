"""All planted errors: slips of a kind that is made, each with tests that must fail for it.

``tests/test_planted_errors.py`` asks whether they can still be planted, and
``python -m tests.planted`` whether the tests still bite.
"""

from tests.planted import compiled, kernels, passing_on, shim, transforms, writing

ERRORS = (
    *transforms.ERRORS, *compiled.ERRORS, *shim.ERRORS, *kernels.ERRORS, *writing.ERRORS,
    *passing_on.ERRORS,
)

__all__ = ["ERRORS"]
