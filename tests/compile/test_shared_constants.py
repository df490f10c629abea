"""Compiled code reads large captured arrays themselves, right after they were compared."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.run import frame
from functrans._compile.run.checksum import LARGE

pytestmark = pytest.mark.usefixtures("unoptimised", "small_arrays")
N = 20_000


@pytest.fixture
def small_arrays(monkeypatch):
    """Arrays count as large as soon as they have checksums."""
    monkeypatch.setattr(frame, "SHARED", LARGE)


def tables():
    return [np.random.default_rng(i).normal(size=N) for i in range(2)]


def shared_by(f, *arrays):
    """Which of the arrays the latest program of a jitted function reads, called a few times."""
    held = [c.cell_contents for c in f.func.__closure__]
    (compiled,) = [x for x in held if hasattr(x, "entries")]
    *_, entry = compiled.entries.values()
    code = entry.executable.verified.sharing(entry.reads.checksums())
    return [any(x is c for c in code.frame.constants) for x in arrays]


def test_arrays_of_a_size_are_not_mixed_up():
    a, b = tables()
    f = ft.jit(lambda x: np.sum(a * x) - 3.0 * np.sum(b * x))
    want = np.sum(a) - 3.0 * np.sum(b)
    for _ in range(4):
        assert f(1.0) == pytest.approx(want, rel=1e-12)
    assert shared_by(f, a, b) == [True, True]


def test_changes_between_calls_are_seen_and_changes_back_too():
    a, _ = tables()
    old = a.copy()
    f = ft.jit(ft.grad(lambda x: np.sum(a * x)))
    for step in range(3):
        a[:] = old if step % 2 else 2.0
        for _ in range(3):
            assert f(1.0) == pytest.approx(np.sum(a), rel=1e-12)


def test_a_backward_pass_has_the_numbers_of_its_forward_pass():
    a, _ = tables()
    f = ft.jit(lambda x: np.sum(a * x * x))
    for _ in range(3):
        f(1.0)
    want = 2.0 * np.sum(a)
    _, pullback = ft.vjp(f, 1.0)
    a[:] = 0.0
    assert pullback(1.0)[0] == pytest.approx(want, rel=1e-12)
    assert f(1.0) == 0.0


def test_what_has_left_for_other_callers_keeps_its_numbers():
    a, _ = tables()
    f = ft.jit(lambda x: np.sum(a * x))
    for _ in range(3):
        f(1.0)
    want, exported = np.sum(a), f.ctypes(1.0)
    a[:] = 0.0
    assert exported(1.0) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("layout", [
    lambda a: a.reshape(200, 300).T, lambda a: np.repeat(a, 2)[::2], lambda a: a.astype(">f8"),
    lambda a: a.astype(np.float32),
], ids=["transposed", "with gaps", "other order", "float32"])
def test_arrays_in_other_layouts_stay_copies_or_are_right(layout):
    a = layout(np.repeat(tables()[0], 3))
    x = np.arange(float(a.shape[-1]))
    f = ft.jit(lambda x: np.sum(a * x))
    for _ in range(3):
        assert f(x) == pytest.approx(np.sum(a * x), rel=1e-4)
        a[...] = a * 2.0
        assert f(x) == pytest.approx(np.sum(a * x), rel=1e-4)


def test_an_output_is_a_copy():
    a, _ = tables()
    f = ft.jit(lambda x: (a, a * x))
    for _ in range(4):
        y, z = f(2.0)
        assert not np.shares_memory(y, a)
        assert not np.shares_memory(z, a)
        np.testing.assert_array_equal(y, a)
