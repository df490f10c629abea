"""One dtype whatever the route: calls have NumPy's types and values, and refuse what it does."""

import numpy as np
import pytest

from tests import typed_calls
from tests.covering import THOROUGH
from tests.typed_calls import faults

CALLS = typed_calls.calls()
# In a quick run of a tenth of the calls, the same ones each time.
DRAWN = CALLS if THOROUGH else CALLS[::10]
DRAWS = 10 if THOROUGH else 1
# Where the result differs for a reason.
APART = {
    "np.polydiv(v, u[:3])": "the number of leading zeros depends on values",
    "np.polymul(v, u)": "the number of leading zeros depends on values",
    "np.poly(v)": "whether the result is real depends on values",
    "np.partition(v, 4)": "NumPy leaves the order of others open",
    "np.unique_values(v)": "NumPy leaves the order open",
    "np.multiply.outer(v, c)": "NumPy's outer takes a number of Python's for a float64",
}


def _is_apart(text):
    into_bytes = "np.mean" in text and "out=" in text and "1'" in text  # sums beyond 255
    many = "item(" in text  # under vmap it has the type of its array; see test_result_types
    return text in APART or into_bytes or many or text.startswith("np.polynomial.legendre")


@pytest.mark.parametrize("call", DRAWN, ids=lambda call: call.text)
def test_types_and_values_are_numpys(call, unoptimised):
    if _is_apart(call.text):
        return
    rng = np.random.default_rng(len(call.text))
    for _ in range(DRAWS):
        kinds = typed_calls.drawn(call, rng)
        found = faults(call, kinds, jit=THOROUGH)
        assert not found, (kinds, found)
