"""The gate of the benchmarks: what is slower by every yardstick, twice, is said to have lost."""

import json

import pytest

from benchmarks import gate

BEFORE = {"a": {"python": 2.0, "small": 4.0, "arrays": 1.0}}


def scaled(*factors):
    return {k: v * f for (k, v), f in zip(BEFORE["a"].items(), factors, strict=True)}


@pytest.mark.parametrize(("measured", "lost"), [
    ([scaled(1.0, 1.0, 1.0)], []),
    ([scaled(1.5, 1.05, 1.5)], []),  # one yardstick has slowed down with it
    ([scaled(1.5, 1.2, 1.5), scaled(1.0, 1.0, 1.0)], []),  # once is noise
    ([scaled(1.5, 1.2, 1.5), scaled(1.3, 1.3, 1.3)], ["a"]),
])
def test_what_is_slower_twice_by_every_yardstick_has_lost(measured, lost):
    turns = iter(measured)
    assert gate.check(BEFORE, {"a": lambda: None}, lambda _: next(turns), lambda _: None) == lost
    assert next(turns, None) is None


def test_a_workload_without_a_figure_fails_the_gate():
    assert gate.check({}, {"a": lambda: None}, lambda _: BEFORE["a"], lambda _: None) == ["a"]


def test_every_workload_of_the_gate_has_its_figures():
    figures = json.loads(gate.FIGURES.read_text())
    assert set(figures) == {*gate.NAMES, *gate.programs_as_written()}
    assert all(set(of_one) == set(gate.YARDSTICKS) for of_one in figures.values())
