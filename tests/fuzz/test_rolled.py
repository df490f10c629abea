"""Rolled loops of drawn functions; ``python -m tests.fuzz.rolled`` draws more of them."""

import os

import pytest

from functrans._compile.rolling import pieces
from tests.fuzz import rolled

THOROUGH = os.environ.get("FUNCTRANS_PROFILE") == "thorough"


CASES = list(rolled.cases(1, 200 if THOROUGH else 3))


@pytest.mark.parametrize("case", CASES, ids=lambda case: "f")
def test_rolled_loops_compute_what_numpy_does(case, monkeypatch):
    monkeypatch.setattr(pieces, "LEAST", rolled.LEAST)
    found, _ = rolled.wrong(case, gradients=THOROUGH)
    assert found is None, f"{case.source}# {found}"
