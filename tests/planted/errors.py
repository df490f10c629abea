"""All planted errors: slips of a kind that is made, each with tests that must fail for it.

``tests/test_planted_errors.py`` asks whether they can still be planted, and
``python -m tests.planted`` whether the tests still bite.
"""

from tests.planted import (
    compiled,
    kernels,
    matrices,
    passing_on,
    sharding,
    shim,
    sparse,
    transforms,
    writing,
)

ERRORS = (
    *compiled.ERRORS, *kernels.ERRORS, *matrices.ERRORS, *passing_on.ERRORS, *sharding.ERRORS,
    *shim.ERRORS, *sparse.ERRORS, *transforms.ERRORS, *writing.ERRORS,
)
