"""Straight-line programs on every processor; FUNCTRANS_PROFILE=thorough draws 2,000 of them.

``python -m tests.fuzz.straight --count 100000`` draws as many as one likes.
"""

import os

import pytest

from functrans._compile.run.machine import Machine, choose
from tests.fuzz.straight import KINDS, cases, targets, wrong

COUNT = 500 if os.environ.get("FUNCTRANS_PROFILE") == "thorough" else 2


@pytest.mark.parametrize("target", targets(), ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_straight_line_code_computes_its_program(kind, target):
    with choose(Machine(target)):
        for case in cases(1, COUNT, [kind]):
            assert wrong(case) is None, case.source


def test_wrong_code_is_noticed(monkeypatch):
    translate = Machine.translate
    monkeypatch.setattr(Machine, "translate", lambda self, text, options: translate(
        self, text.replace("fsub", "fadd", 1), options))
    assert any(map(wrong, cases(1, 4)))
