"""Compiled functions whose arguments are containers or have names: the short way of later calls."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import functrans as ft
from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._transforms.staging.entry import nothing
from functrans._transforms.staging.jit import Jitted

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X, Y = np.linspace(0.5, 1.5, 4), np.linspace(2.0, 3.0, 3)
Pair = namedtuple("Pair", "a b")


@dataclass
class Record:
    a: object
    b: object


class Box:
    """A registered container."""

    def __init__(self, *inside, label="box"):
        self.inside, self.label = inside, label


ft.tree.register(Box, lambda box: (iter(box.inside), box.label),
                 lambda label, inside: Box(*inside, label=label))


def total(*args: Any, **kwargs: Any) -> Any:
    """A number that depends on each leaf, its place, and the order of keys."""
    terms = [np.sum(np.sin(x)) * (i + 1.0) for i, x in enumerate(in_order((args, kwargs)))]
    return sum(terms, start=0.0)


def in_order(x: Any) -> list:
    """The leaves, those of dicts in their own order."""
    if isinstance(x, dict):
        return [y for v in x.values() for y in in_order(v)]
    if isinstance(x, tuple | list):
        return [y for v in x for y in in_order(v)]
    if isinstance(x, Record):
        return in_order((x.a, x.b))
    if isinstance(x, Box):
        return [y * (1 + len(x.label)) for y in in_order(x.inside)]
    return [] if x is None else [x]


CALLS = {
    "list": (([X, Y],), {}),
    "empty": (([], X), {}),
    "list in tuple": ((([X, 2.0], Y),), {}),
    "dict": (({"b": X, "a": Y},), {}),
    "dict of dicts": (({"b": {"w": X}, "a": {"w": Y, "v": 2}},), {}),
    "OrderedDict": ((OrderedDict(b=X, a=Y),), {}),
    "keys of two kinds": (({1: X, "a": Y},), {}),
    "namedtuple": ((Pair(X, Y),), {}),
    "namedtuple of lists": ((Pair([X], [Y]),), {}),
    "dataclass": ((Record(X, {"y": Y}),), {}),
    "registered": ((Box(X, [Y]),), {}),
    "None": (((X, None), None, Y), {}),
    "names": ((X,), {"y": Y}),
    "names alone": ((), {"y": Y, "x": X}),
    "containers by name": ((X,), {"p": {"b": X, "a": Y}, "q": [Y]}),
}


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_the_short_way(name):
    args, kwargs = CALLS[name]
    runs = []
    f = Jitted(lambda *a, **k: runs.append(1) or total(*a, **k), (), (), AS_NUMPY)
    ys = [f.again(args, kwargs) for _ in range(4)]
    np.testing.assert_allclose(ys, total(*args, **kwargs), rtol=1e-14)
    assert len(set(map(float, ys))) == 1
    assert len(runs) == 1
    assert f.latest[1] is not nothing
    assert f.latest[1](*args, **kwargs) == ys[0]


@pytest.mark.parametrize("other", [
    {"a": Y, "b": X}, {"b": X, "a": X}, {"b": X, "a": Y, "c": X}, {"b": X}, {"b": X, "a": [Y]},
    {"b": X, "a": Y.astype("f4")}, {"b": X, "a": 2.0}, {"b": X, "a": None}, {}, [X, Y], X,
    OrderedDict(b=X, a=Y), {"b": X, "a": np.float32(2.0)}, {"b": X, "a": Y[::-1]},
    {"b": X, "a": True}, {"b": X, "a": ft.array(Y)},
])
def test_what_differs_goes_its_own_way(other):
    f = ft.jit(lambda x: total(x) if not isinstance(x, OrderedDict) else -total(x))
    first = {"b": X, "a": Y}
    sign = -1.0 if isinstance(other, OrderedDict) else 1.0
    for _ in range(3):
        for _ in range(2):
            np.testing.assert_allclose(f(first), total(first), rtol=1e-14)
        for _ in range(2):
            np.testing.assert_allclose(f(other), sign * total(other), rtol=1e-6)


def test_equal_keys_of_another_type_are_told_apart():
    f = ft.jit(lambda p: sum(x * (2.0 if k is True else 1.0) for k, x in p.items()))
    for _ in range(3):
        np.testing.assert_array_equal(f({1: X, 2: X}), 2 * X)
        np.testing.assert_array_equal(f({True: X, 2: X}), 3 * X)


def test_an_argument_more_is_another_call():
    def f(*ps: Any):
        return np.sum(ps[0]["x"]) * len(ps)

    f = ft.jit(f)
    for _ in range(3):
        np.testing.assert_allclose(f({"x": X}), np.sum(X), rtol=1e-15)
        np.testing.assert_allclose(f({"x": X}, Y), 2 * np.sum(X), rtol=1e-15)


def test_text_beside_numbers_is_part_of_the_program():
    f: Any = ft.jit(lambda p: p["x"] * 2 if p["how"] == "twice" else -p["x"])
    for _ in range(3):
        np.testing.assert_array_equal(f({"x": X, "how": "twice"}), 2 * X)
        np.testing.assert_array_equal(f({"x": X, "how": "minus"}), -X)


def test_the_order_of_names_does_not_matter():
    f = ft.jit(lambda x, y: np.sum(x) - np.sum(y))
    for _ in range(3):
        assert f(x=X, y=Y) == f(y=Y, x=X) == f(X, y=Y) == f(X, Y)


def test_a_captured_array_that_changes_is_seen():
    w = np.ones(4)
    f = ft.jit(lambda p: np.sum(w * p["x"]))
    for scale in (1.0, 2.0, 3.0):
        w[:] = scale
        for _ in range(3):
            np.testing.assert_allclose(f({"x": X}), scale * np.sum(X), rtol=1e-15)


def test_functions_that_decide_by_values_in_containers():
    f: Any = ft.jit(
        lambda p: {"y": p["x"] * 2, "n": [np.sum(p["x"])]} if p["x"][0] > 0 else [p["x"]])
    for _ in range(4):
        y = f({"x": X})
        np.testing.assert_array_equal(y["y"], 2 * X)
        assert list(y) == ["y", "n"]
        np.testing.assert_allclose(y["n"][0], np.sum(X), rtol=1e-15)
        np.testing.assert_array_equal(f({"x": -X})[0], -X)


@pytest.mark.parametrize("out", [
    lambda a, b: {"z": a, "a": [b, (a,)]}, lambda a, b: Pair(a, {"b": b}), lambda a, b: [[], a],
    lambda a, b: OrderedDict(z=a, a=b), lambda a, b: Record(a, (b, None)), lambda a, b: ((a,),),
    lambda a, b: {"z": None, "a": b},
])
def test_results_are_put_together_as_the_function_did(out):
    f = ft.jit(lambda x: out(x * 2, np.sum(x)))
    expected = out(X * 2, np.sum(X))
    for _ in range(3):
        y = f(X)
        assert ft.tree.structure(y) == ft.tree.structure(expected)
        assert not isinstance(y, dict) or list(y) == list(expected)
        for a, e in zip(ft.tree.leaves(y), ft.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-15)


def test_hundreds_of_arrays_are_arguments_of_the_short_way():
    ps = {f"layer {k}": {"w": X * k, "b": Y + k} for k in range(150)}
    f = Jitted(lambda ps: {k: np.sum(p["w"]) * p["b"] for k, p in ps.items()}, (), (), AS_NUMPY)
    ys = [f.again((ps,), {}) for _ in range(3)]
    assert f.latest[1] is not nothing
    for k, y in f.latest[1](ps).items():
        np.testing.assert_array_equal(y, ys[0][k])
        np.testing.assert_allclose(y, np.sum(ps[k]["w"]) * ps[k]["b"], rtol=1e-14)
