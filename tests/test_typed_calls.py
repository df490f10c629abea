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
    "v.item(0)": "a traced number has the type of its array under vmap",
}


@pytest.mark.parametrize("call", DRAWN, ids=lambda call: call.text)
def test_types_and_values_are_numpys(call, unoptimised):
    if call.text in APART or ("np.mean" in call.text and "out" in call.text and "1'" in call.text):
        return
    rng = np.random.default_rng(len(call.text))
    for _ in range(DRAWS):
        kinds = typed_calls.drawn(call, rng)
        found = faults(call, kinds, jit=THOROUGH)
        assert not found, (kinds, found)
