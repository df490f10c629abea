"""New closures of known code: found not to write without a second look, unless one is due."""

import gc
import weakref
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._transforms import mutation, verdicts

X = np.array([1.0, 2.0])


class Model:
    """What the closures of these tests close over."""

    def __init__(self, weights=None, step=None):
        self.weights = np.ones(2) if weights is None else weights
        if step is not None:
            self.step = step

    def loss(self, x):
        return np.sum(scale(x) * self.weights)

    def stepped(self, x):
        return np.sum(self.step(x))


def scale(x):
    return 3.0 * x


def write(x):
    y = np.zeros(2) * x
    y[0] = x[0] * 5.0
    return y


def closure_over(m):
    return lambda x: m.loss(x)


def looks(f, x=X):
    """How often code was looked through for the gradient of ``f``, and the gradient."""
    with mock.patch.object(mutation, "Callees", wraps=mutation.Callees) as seen:
        g = ft.grad(f)(x)
    return seen.call_count, g


@pytest.fixture(autouse=True)
def nothing_is_known():
    verdicts._verdicts.clear()


def test_a_closure_over_another_object_of_the_class_is_not_read_again():
    assert looks(closure_over(Model()))[0] == 1
    count, g = looks(closure_over(Model(2 * np.ones(2))))
    assert count == 0
    assert_array_equal(g, [6.0, 6.0])


def test_closures_over_functions_methods_and_lists_are_known():
    def made(k):
        def inner(x):
            return k * x

        bound, several = Model(k * np.ones(2)).loss, [inner, k]
        return lambda x: bound(x) + several[0](x).sum()

    assert looks(made(1.0))[0] == 1
    count, g = looks(made(2.0))
    assert count == 0
    assert_array_equal(g, [8.0, 8.0])


CHANGES = {
    "a global": lambda patch: patch.setitem(globals(), "scale", write),
    "a method": lambda patch: patch.setattr(Model, "loss", lambda self, x: np.sum(write(x))),
    "code": lambda patch: patch.setattr(scale, "__code__", write.__code__),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_has_changed_meanwhile_is_looked_at(what, monkeypatch):
    f = closure_over(Model())
    looks(f)
    CHANGES[what](monkeypatch)
    count, g = looks(closure_over(Model()))
    assert count == 1
    assert_array_equal(g, [5.0, 0.0])


@pytest.mark.parametrize("made", [
    lambda f: lambda x: np.sum(f(x)),
    lambda f: (lambda several: lambda x: np.sum(several[0](x)))([f]),
    lambda f: (lambda m: lambda x: m.stepped(x))(Model(step=f)),
    lambda f: (lambda loss: lambda x: loss(x))(Model(step=f).stepped),
], ids=["cell", "list", "attribute", "method"])
def test_a_function_that_writes_in_the_place_of_one_that_does_not_is_followed(made):
    def double(x):
        return 2.0 * x

    assert_array_equal(looks(made(double))[1], [2.0, 2.0])
    assert_array_equal(looks(made(write))[1], [5.0, 0.0])
    assert_array_equal(looks(made(double))[1], [2.0, 2.0])


def test_what_cannot_be_compared_is_looked_at_each_time():
    class Slots:
        __slots__ = ("step",)

    def made(f):
        s = Slots()
        s.step = f
        return lambda x: np.sum(s.step(x))

    assert_array_equal(looks(made(scale))[1], [3.0, 3.0])
    assert_array_equal(looks(made(write))[1], [5.0, 0.0])


class Partly(Model):
    """Attributes in a dict, and in a slot."""

    __slots__ = ("slot",)


TABLE = [scale]


def test_contents_of_slots_and_of_global_lists_are_looked_at_each_time():
    def made(f):
        m = Partly()
        m.slot = f
        return lambda x: np.sum(m.slot(x))

    assert_array_equal(looks(made(scale))[1], [3.0, 3.0])
    assert_array_equal(looks(made(write))[1], [5.0, 0.0])

    def listed():
        return lambda x: np.sum(TABLE[0](x))

    assert_array_equal(looks(listed())[1], [3.0, 3.0])
    TABLE[0] = write
    try:
        assert_array_equal(looks(listed())[1], [5.0, 0.0])
    finally:
        TABLE[0] = scale


def test_objects_in_cells_are_not_kept_alive():
    m = Model()
    gone = weakref.ref(m)
    looks(closure_over(m))
    del m
    gc.collect()
    assert gone() is None
