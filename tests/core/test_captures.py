"""Arrays that change between the run of a function and the backward pass."""

import numpy as np
import pytest

import functrans as ft
from functrans._compile.run.checksum import ROW, checksum
from functrans._transforms.reverse.tracer import same_bits
from functrans._transforms.reverse.vjp import VJPTrace
from functrans.errors import CaptureError

X = np.array([1.0, 2.0, 3.0])


def _frozen(c):
    view = c[:]
    view.setflags(write=False)
    return view


# An array of about so many entries, and what the function makes of it.
CHANGED = {
    "whole": lambda n: (np.ones(n), lambda c: c),
    "float32": lambda n: (np.ones(n, np.float32), lambda c: c),
    "integers": lambda n: (np.arange(n), lambda c: c),
    "strided": lambda n: (np.ones(2 * n), lambda c: c[::-2]),
    "every second entry": lambda n: (np.ones((n, 1)), lambda c: c[:, 0]),
    "transposed": lambda n: (np.ones((n // 50, 50)), lambda c: c.T.ravel()),
    "column after column": lambda n: (np.ones((50, n // 50), order="F"), lambda c: c.reshape(-1)),
    "broadcast": lambda n: (np.ones(n), lambda c: np.broadcast_to(c, (2, n))),
    "read-only view": lambda n: (np.ones(n), _frozen),
}


def _vjp(f, x, change):
    y, pull = ft.vjp(f, x)
    change()
    return pull(np.ones_like(y))[0]


def _linearize(f, x, change):
    _, push = ft.linearize(lambda x: f(x), x)
    change()
    return ft.linear_transpose(push, x)(1.0)[0]


def _changing(derive):
    def of(f, x, change):
        def g(x):
            y = f(x)
            change()
            return y

        return derive(g)(x)

    return of


SEEN = {
    "grad": _changing(ft.grad),
    "value_and_grad": lambda f, x, change: _changing(ft.value_and_grad)(f, x, change)[1],
    "vjp": _vjp,
    "linearize": _linearize,
    "vjp of a checkpoint": lambda f, x, change: _vjp(ft.checkpoint(f), x, change),
}
LAYOUTS = {
    "C": lambda x: x, "F": np.asfortranarray, "strided": lambda x: x[::2, ::3],
    "turned": lambda x: x.reshape(30, 10, 1000).transpose(1, 2, 0), "empty": lambda x: x[:0],
    "number": lambda x: x[0, 0:1].reshape(()), "float32": lambda x: x.astype(np.float32)[:, :-1],
}


def test_a_small_captured_array_is_copied():
    c = np.ones(3)
    _, pull = ft.vjp(lambda x: x * c, X)
    c[:] = 100.0
    np.testing.assert_array_equal(pull(np.ones(3))[0], np.ones(3))


def test_a_small_primal_is_copied():
    x = X.copy()
    _, pull = ft.vjp(lambda x: x * x, x)
    x[:] = 0.0
    np.testing.assert_array_equal(pull(np.ones(3))[0], 2 * X)


@pytest.mark.parametrize("which", ["captured", "primal"])
@pytest.mark.parametrize("size", [1000, 5000, 16_000])
def test_an_array_up_to_128_kb_is_copied(which, size):
    c, x = np.ones(size), np.full(size, 3.0)
    _, pull = ft.vjp(lambda x: x * c * x, x)
    (c if which == "captured" else x)[17] = 5.0
    np.testing.assert_array_equal(pull(np.ones(size))[0], np.full(size, 6.0))


@pytest.mark.parametrize("which", ["captured", "primal"])
def test_a_larger_array_that_changed_is_noticed(which):
    c, x = np.ones(40_000), np.ones(40_000)
    _, pull = ft.vjp(lambda x: x * c * x, x)
    (c if which == "captured" else x)[17] = 5.0
    with pytest.raises(
        CaptureError, match=r"vjp\(<lambda>\).*float64\[40000\].*test_captures.py.*copy\(\)"
    ):
        pull(np.ones(40_000))


def test_a_permuted_large_array_is_noticed():
    c = np.arange(100_000.0)
    _, push = ft.linearize(lambda x: x * c, np.ones(100_000))
    c[[5, 70_000]] = c[[70_000, 5]]
    with pytest.raises(CaptureError, match="linearize"):
        push(np.ones(100_000))


def test_exchanged_rows_of_a_permutation_are_noticed():
    c = np.eye(16, 4096)  # whose rows and columns have the same sums afterwards
    _, push = ft.linearize(lambda x: c @ x, np.ones(4096))
    c[[3, 8]] = c[[8, 3]]
    with pytest.raises(CaptureError, match="linearize"):
        push(np.ones(4096))


def test_a_buffer_reused_inside_the_function_is_noticed_or_right():
    def f(x):
        buffer, y = np.zeros(3), 0.0
        for i in range(3):
            buffer += i + 1.0
            y = y + np.sum(x * buffer)
        return y

    np.testing.assert_array_equal(ft.grad(f)(X), np.full(3, 1.0 + 3.0 + 6.0))


@pytest.mark.parametrize("entry", [0, 2502, 4999])
@pytest.mark.parametrize("kind", CHANGED)
@pytest.mark.parametrize("mode", SEEN)
def test_a_changed_entry_gives_the_derivative_before_or_an_error(mode, kind, entry):
    for size in (5000, 40_000):
        x, (c, view) = np.linspace(0.0, 1.0, size), CHANGED[kind](size)
        before = view(c).copy()

        def change(c=c, k=entry * size // 5000):
            c.reshape(-1, order="A")[k % c.size] += 1

        def f(x, c=c, view=view):
            return np.sum(x * x * view(c))

        try:
            g = SEEN[mode](f, x, change)
        except CaptureError:
            assert size == 40_000 or "checkpoint" in mode
        else:
            np.testing.assert_allclose(g, (2 * x * before).reshape(-1, size).sum(0), rtol=1e-15)


@pytest.mark.parametrize("size", [3, 5000, 40_000])
def test_an_argument_that_the_function_changes_gives_the_derivative_or_an_error(size):
    x = np.ones(size)

    def f(v):
        y = np.sum(v * v)
        x[:] = 7.0
        return y

    for derive in (ft.grad, ft.hessian if size < 10 else lambda f: lambda x: ft.hvp(f, x, x)[1]):
        x[:] = 1.0
        try:
            g = derive(f)(x)
        except CaptureError:
            assert size == 40_000 or derive is not ft.grad
        else:
            np.testing.assert_array_equal(g, 2 * (np.eye(3) if g.ndim > 1 else np.ones(size)))


READING = {
    "product": lambda x: x * x, "view": lambda x: x[1:] * 2.0 * x[:-1], "unary": np.sin,
    "reshaped": lambda x: np.cos(x.reshape(200, 200)),
    "matrix": lambda x: x.reshape(200, 200) @ x[:200],
    "node": lambda x: np.linalg.norm(x), "itself": lambda x: x * x.concrete_value(),
    "where": lambda x: np.where(x > 0.5, x * x, x), "checkpoint": ft.checkpoint(np.sin),
}
NOT_READING = {
    "sum": np.sum, "shifted": lambda x: x[1:] - 2.0 * x[:-1], "identity": lambda x: x,
    "places": lambda x: x[np.argsort(x)], "mean": lambda x: x.reshape(200, 200).mean(0),
    "joined": lambda x: 3.0 * x[::-1] + np.float64(2.0), "scaled": lambda x: x / 4,
}


@pytest.mark.parametrize("f", READING.values(), ids=READING)
def test_a_large_argument_that_the_backward_reads_must_not_change(f):
    x = np.linspace(0.0, 1.0, 40_000)
    y, pull = ft.vjp(f, x)
    x[7] = 5.0
    with pytest.raises(CaptureError, match="vjp"):
        pull(np.ones(np.shape(y)))


@pytest.mark.parametrize("f", NOT_READING.values(), ids=NOT_READING)
def test_a_large_argument_that_the_backward_does_not_read_may_change(f):
    x = np.linspace(0.0, 1.0, 40_000)
    y, pull = ft.vjp(f, x)
    (before,) = pull(np.ones(np.shape(y)))
    x[7] = 5.0
    np.testing.assert_array_equal(pull(np.ones(np.shape(y)))[0], before)


@pytest.mark.parametrize("size", [1000, 5000, 20_000, 40_000])
def test_a_buffer_that_is_back_when_the_backward_comes_is_not_missed(size):
    c = np.ones(size)

    def f(x):
        y = np.sum(x * c)
        c[:] = 2.0
        y = y + np.sum(x * c)
        c[:] = 1.0
        return y

    if size < 40_000:
        np.testing.assert_array_equal(ft.grad(f)(np.ones(size)), np.full(size, 3.0))
    else:
        with pytest.raises(CaptureError, match=r"grad\(f\)"):
            ft.grad(f)(np.ones(size))


@pytest.mark.parametrize("change", [(0.0, -0.0), (np.nan, -np.nan)])
@pytest.mark.parametrize("dtype", [float, np.float32, complex, np.longdouble])
def test_bits_that_compare_equal_are_a_change(change, dtype):
    x = np.full(5000, change[0], dtype)
    y = x.copy()
    assert same_bits(x, y)
    y[4000] = change[1]
    assert not same_bits(x, y)
    assert dtype is np.longdouble or checksum(x) != checksum(y)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_native_and_numpys_checksums_agree(layout):
    x = layout(np.linspace(0.0, 1.0, 300_000).reshape(300, 1000))
    with ft.config(jit=False):
        want = checksum(x)
    assert checksum(x) == want == checksum(x.copy("K"))


NEGATED = {"all": slice(None), "two": [0, 1], "a row": slice(0, 4096)}


@pytest.mark.parametrize("entries", NEGATED.values(), ids=NEGATED)
@pytest.mark.parametrize("compiled", [True, False])
def test_signs_of_several_entries_do_not_cancel(entries, compiled):
    x = np.random.default_rng(0).standard_normal(1 << 15)
    with ft.config(jit=compiled):
        before = checksum(x)
        x[entries] *= -1
        assert checksum(x) != before


@pytest.mark.parametrize("compiled", [True, False])
def test_a_checksum_tells_rows_of_words_apart_and_reads_the_last_ones(compiled):
    x = np.random.default_rng(0).standard_normal(40 * ROW + 100)
    swapped, last = x.copy(), x.copy()
    swapped[: 2 * ROW] = np.roll(x[: 2 * ROW], ROW)
    last[-1] += 1
    with ft.config(jit=compiled):
        assert len({checksum(v) for v in (x, swapped, last)}) == 3


def test_what_is_read_only_all_the_way_down_is_not_copied():
    c = np.ones(5000)
    c.setflags(write=False)
    trace = VJPTrace("f")
    assert trace.capture(c) is c
    frozen = ft.array(c)
    assert trace.capture(frozen) is frozen
    view = np.ones(5000)[:]
    view.setflags(write=False)
    assert trace.capture(view) is not view


def test_a_result_does_not_change_with_the_callers_cotangent():
    _, pull = ft.vjp(lambda x: x + 1.0, X)
    ct = np.ones(3)
    (g,) = pull(ct)
    ct[:] = 7.0
    np.testing.assert_array_equal(g, np.ones(3))


@pytest.mark.parametrize("size", [3, 5000, 40_000])
def test_an_operand_of_a_compiled_call_may_change_afterwards(size):
    c, x = np.ones(size), np.full(size, 3.0)
    f = ft.jit(lambda x, c: np.sum(x * x * c))
    _, pull = ft.vjp(lambda x: f(x, c), x)
    c[-1] = 5.0
    if size < 40_000:
        np.testing.assert_array_equal(pull(1.0)[0], np.full(size, 6.0))
    else:
        with pytest.raises(CaptureError, match="vjp"):
            pull(1.0)


def test_a_checkpoint_notices_a_change_that_its_outputs_do_not_show():
    c, x = np.ones(5000), np.ones(5000)
    x[17] = 0.0
    _, pull = ft.vjp(ft.checkpoint(lambda x: x * c), x)
    c[17] = 3.0
    with pytest.raises(CaptureError, match="arrays that change in between"):
        pull(np.ones(5000))


def test_a_checkpoint_may_write_into_a_buffer_of_its_own():
    def f(x):
        buffer, y = np.zeros(300), 0.0
        for i in range(3):
            buffer += i + 1.0
            y = y + np.sum(x * buffer)
        return y

    np.testing.assert_array_equal(ft.grad(ft.checkpoint(f))(np.ones(300)), np.full(300, 10.0))


def test_a_captured_array_may_change_its_shape():
    c = np.arange(300.0)[:, None].copy()

    def f(x):
        y = (c * x[:, None]).sum()
        c.resize(300, refcheck=False)
        return y + (c * x).sum()

    np.testing.assert_array_equal(ft.grad(f)(np.ones(300)), 2 * np.arange(300.0))


# NumPy 2.5 deprecates that dtypes and shapes are set
SET = pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")


@SET
@pytest.mark.parametrize("attribute, value", [("dtype", np.dtype(np.int64)), ("shape", (2, -1))])
@pytest.mark.parametrize("size", [4, 300, 20_000, 50_000])
def test_attributes_that_are_set_are_noticed(attribute, value, size):
    c = np.linspace(1.0, 2.0, size)
    f = ft.jit(lambda s: np.sum(s * c[..., :3]))
    f(1.0)
    _, pull = ft.vjp(lambda x: np.sum(x * c), np.ones(size))
    kept = c.copy()
    setattr(c, attribute, value)
    np.testing.assert_allclose(f(1.0), np.sum(1.0 * c[..., :3]), rtol=1e-15)
    if size < 40_000:
        np.testing.assert_array_equal(pull(1.0)[0], kept)
    else:
        with pytest.raises(CaptureError):
            pull(1.0)
