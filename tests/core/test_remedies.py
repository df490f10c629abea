"""Errors that say what to write for the call that was made, and manners of NumPy's numbers."""

import cmath
import math
from contextlib import suppress
from math import exp

import numpy as np
import pytest

import functrans as ft
from functrans._core import remedies
from functrans.errors import ArgumentError, ConcretizationError, NotDifferentiable

TABLE = np.arange(9.0).reshape(3, 3)
SQUARE = np.vectorize(lambda v: v * v)


LIBRARY = {"np": np, "__name__": "pandas.frame"}
exec("""
class Table:
    def to_numpy(self):
        return np.ones(1)

    def dot(self, other):
        return np.asarray(other)

    __matmul__ = dot
""", LIBRARY)
TABLE_OF_PANDAS = LIBRARY["Table"]()


def named(f):
    f.__name__ = "f"
    return f


def assigned(x):
    y = np.zeros((2, 3))
    y[0] = x * np.ones(3)


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: np.array([x, 2 * x]), "write np.stack([x, 2 * x]) for np.array([x, 2 * x])."),
        (lambda x: np.asarray((x, x), dtype=float),
         "write np.stack((x, x)) for np.asarray((x, x), dtype=float)."),
        (lambda x: np.array([[x, x], [x, x]]),
         "write import functrans.numpy as np, whose np.array takes [[x, x], [x, x]]."),
        (lambda x: np.array([i * x for i in range(3)]),
         "write np.stack([i * x for i in range(3)]) for"),
        (lambda x: (lambda parts: np.array(parts))([x, x]),
         "write np.stack(parts) for np.array(parts)."),
        (lambda x: np.asarray(x), "leave out np.asarray: x is an array already."),
        (lambda x: np.sum([x, x]),
         "whose function takes [x, x], or in np.sum([x, x]), write np.stack([x, x])."),
        (lambda x: np.linalg.det([[x, x], [x, x]]),
         "in np.linalg.det([[x, x], [x, x]]), write functrans.numpy.array([[x, x], [x, x]])."),
        (lambda x: TABLE_OF_PANDAS @ x,
         "write TABLE_OF_PANDAS.to_numpy() for TABLE_OF_PANDAS in TABLE_OF_PANDAS @ x."),
        (lambda x: TABLE_OF_PANDAS.dot(x), "write TABLE_OF_PANDAS.to_numpy() for TABLE_OF_PANDAS"),
        (lambda x: np.full(3, x), "take functrans.numpy's function in np.full(3, x), where"),
        (lambda x: np.r_[x, 1.0], "write functrans.numpy.r_[x, 1.0] for np.r_[x, 1.0]."),
        (lambda x: np.float32(x * 2), "write (x * 2).astype(np.float32) for np.float32(x * 2)."),
        (lambda x: SQUARE([x]), "make SQUARE with functrans.numpy.vectorize."),
        (lambda x: {}["y"] if len("") else np.arange(3.0) @ np.array(
            [x, x, x]
        ), "write np.stack([x, x, x]) for np.array([x, x, x])."),
    ],
)
def test_the_error_is_one_sentence_about_the_call(f, words):
    with pytest.raises(ConcretizationError) as caught:
        ft.grad(f)(1.0)
    text = str(caught.value)
    assert words in text
    assert text.count(";") == 1


def test_the_error_of_an_assignment_names_the_array():
    unseen = {"assigned": assigned}
    with pytest.raises(ConcretizationError, match=r":\d+: `y` is an array of numpy's own, which"):
        ft.grad(lambda x: unseen["assigned"](x))(1.0)


def test_the_error_of_a_traced_integer_names_the_index():
    y = np.arange(3.0)
    with pytest.raises(ConcretizationError, match=r"write ft\.array\(y\)\[i\] for y\[i\]\."):
        ft.vmap(lambda i: y[i])(np.arange(2))


def test_without_the_users_text_the_error_is_about_all_calls():
    names = {"np": np}
    exec("def f(x): return np.array([x])", names)
    with pytest.raises(ConcretizationError, match=r"after import .*, np\.array\(\[a, b\]\) takes"):
        ft.grad(names["f"])(1.0)


def test_a_call_without_a_frame_of_the_users_has_the_general_answer(monkeypatch):
    monkeypatch.setattr(remedies, "user_frame", lambda: None)
    assert remedies.remedy() == remedies.GENERAL
    assert not remedies.formats_text()


@pytest.mark.parametrize(("f", "words"), [
    (lambda x: math.sin(x), r"math\.sin\(x\) got .* Write np\.sin\(x\)"),
    (lambda x: math.atan2(x, 2.0), r"Write np\.arctan2\(x, 2\.0\)"),
    (lambda x: math.lgamma(2 * x), r"Write scipy\.special\.gammaln\(2 \* x\)"),
    (lambda x: cmath.exp(x), r"Write np\.exp\(x\)"),
    (lambda x: exp(x), r"exp\(x\) got .* Write np\.exp\(x\)"),
    (lambda x: float(2 * x), r"float\(2 \* x\) got .* since 2 \* x is a number already"),
])
def test_the_error_of_a_function_of_math_names_that_of_numpy(f, words):
    with pytest.raises(ConcretizationError, match=words):
        ft.grad(f)(1.0)


def test_a_first_call_that_returns_none_says_so():
    with pytest.raises(NotDifferentiable, match=r"jacobian: `f` returned None. Is a `return`"):
        ft.jacobian(named(lambda x: None))(1.0)
    with pytest.warns(RuntimeWarning, match=r"jit\(f\) returns None, .* Is a `return` missing"):
        assert ft.jit(named(lambda x: None))(1.0) is None


def test_a_list_among_operands_is_explained():
    with pytest.raises(TypeError) as caught:
        ft.grad(lambda x: np.sum(x ** 2))([1.0, 2.0])
    assert "A list of numbers stays one under a transform" in caught.value.__notes__[0]


# ---- numbers


def test_round_is_that_of_numpys_numbers():
    assert ft.grad(lambda x: x * round(x))(2.6) == 3.0
    assert ft.grad(lambda x: x * round(x, 1))(2.66) == 2.7
    assert ft.jvp(lambda x: round(x, -1) + x, 16.0, 1.0) == (36.0, 1.0)
    with pytest.raises(ArgumentError, match=r"np\.round takes arrays"):
        ft.grad(lambda x: round(x).sum())(np.ones(2))
    assert ft.jit(lambda x: x * round(x))(2.6) == 2.6 * 3
    with pytest.raises(ConcretizationError, match=r"int\(\) of"):
        ft.vmap(lambda x: round(x))(np.ones(2))


def test_text_shows_the_value():
    seen = []

    def f(x):
        text = "%.2e"
        text %= x
        seen.extend(["%g" % x, "%5.1f|%d" % (x, x), f"{x:.3f}", format(x, "g"), text])  # noqa: UP031
        return x

    ft.grad(ft.grad(f))(2.3)
    assert seen == ["2.3", "  2.3|2", "2.300", "2.3", "2.30e+00"]
    assert ft.jit(lambda x: x * len("%g" % x))(0.125) == 0.625  # noqa: UP031
    with pytest.raises(ConcretizationError, match="the text of"):
        ft.vmap(lambda x: ("%g" % x, x)[1])(np.ones(2))  # noqa: UP031


@pytest.mark.parametrize("text", [
    "{:.2f}".format, lambda x: "%g" % x, lambda x: f"{x:.1e}", lambda x: f"{x}",  # noqa: UP031
])
@pytest.mark.parametrize("kind", [float, np.float32, np.int64])
def test_what_is_chosen_by_text_is_chosen_by_the_value(text, kind):
    def f(x):
        memo = {}
        parts = [memo.setdefault(text(v), v) for v in (x, x * 2, x / 2, x)]
        return parts[0] * parts[1] + parts[2] + len(memo) * parts[3]

    compiled = ft.jit(f)
    for value in (12, 0, 3):
        x = kind(value)
        assert compiled(x) == f(x)
        if kind is not np.int64:
            assert ft.grad(compiled)(x) == ft.jit(ft.grad(f))(x) == ft.grad(f)(x)
    batch = np.array([12, 0, 3], kind)
    if kind is not np.int64 or text(kind(1)) != "1":
        np.testing.assert_array_equal(ft.vmap(compiled)(batch), [f(x) for x in batch])


def test_the_text_of_a_traced_array_is_refused_as_numpys_is():
    with pytest.raises(TypeError, match="unsupported format string"):
        ft.jit(lambda x: x * len(f"{x:.2f}"))(np.ones(2))


def test_a_remainder_of_numbers_is_no_text():
    assert ft.grad(lambda x: 7.0 % x + x % 2.0)(2.5) == -1.0
    with pytest.raises(ConcretizationError, match=r"float\(x\) got"):
        ft.grad(lambda x: float(x) % 2.0)(2.5)


def test_divmod_has_quotient_and_remainder():
    assert ft.grad(lambda x: sum(divmod(x, 0.7)))(2.3) == 1.0
    assert ft.grad(lambda x: sum(divmod(7.0, x)))(2.3) == -3.0


# ---- r_ and c_


@pytest.mark.parametrize(
    "join",
    [
        lambda np, x, v: np.r_[x, 1, v, 2.0],
        lambda np, x, v: np.r_["0,2", v, v],
        lambda np, x, v: np.r_["1,2,0", v, [x, x, x]],
        lambda np, x, v: np.r_["0,2,-1", v, v],
        lambda np, x, v: np.r_["-1", v, x],
        lambda np, x, v: np.r_["0,3,1", v, v],
        lambda np, x, v: np.c_[v, v, [1, 2, 3]],
        lambda np, x, v: np.c_[x, 1.0],
        lambda np, x, v: np.c_[np.ones((3, 2)), v],
        lambda np, x, v: np.r_[0:3, v, 0:1:3j],
        lambda np, x, v: np.r_[0:x:3j],
        lambda np, x, v: np.r_[v],
    ],
)
def test_r_and_c_join_as_numpys(join):
    x, v = 2.0, np.array([1.0, 3.0, 5.0])
    expected = join(np, x, v)
    y, t = ft.jvp(lambda x, v: join(ft.numpy, x, v), (x, v), (1.0, np.zeros(3)))
    np.testing.assert_array_equal(y, expected)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(t, join(np, x + 1, v) - expected)


def test_r_keeps_the_dtype_of_arrays_beside_pythons_numbers():
    y = ft.jvp(lambda x: ft.numpy.r_[x, 1.0, 2], np.ones(2, np.float32), np.ones(2, np.float32))[0]
    assert y.dtype == np.r_[np.ones(2, np.float32), 1.0, 2].dtype == np.float32


def test_r_of_plain_numbers_is_an_array_of_its_own():
    x = np.ones(2)
    y = ft.numpy.r_[x]
    assert isinstance(y, ft.Array)
    assert not np.may_share_memory(x, y)
    assert len(ft.numpy.r_) == 0


def test_r_refuses_matrices_and_ranges_of_unknown_length():
    with pytest.raises(ft.errors.UnsupportedError, match=r"np\.r_\['r', \.\.\.\] of traced values"):
        ft.grad(lambda x: ft.numpy.r_["r", x].sum())(1.0)
    with pytest.raises(ft.errors.UnsupportedError, match="has a length that depends on them"):
        ft.grad(lambda x: ft.numpy.r_[0:x:0.5].sum())(1.0)


def test_arrays_joined_by_r_can_be_written_to():
    def f(x):
        y = ft.numpy.r_[x, 1.0, 2.0]
        y[1] = x**2
        return y.sum()

    assert ft.grad(f)(3.0) == 7.0


@pytest.mark.parametrize(("f", "write"), [
    (lambda i: TABLE[i], r"ft\.array\(TABLE\)\[i\]"),
    (lambda i: TABLE[i, i - 1], r"ft\.array\(TABLE\)\[\(?i, i - 1\)?\]"),
    (lambda i: TABLE[:, i], r"ft\.array\(TABLE\)\[\(?:, i\)?\]"),
    (lambda i: TABLE[i > 1], r"ft\.array\(TABLE\)\[i > 1\]"),
], ids=["rows", "entries", "columns", "mask"])
def test_a_plain_table_at_traced_places(f, write):
    i = np.arange(1025) % 3  # too many to decide by
    with pytest.warns(RuntimeWarning, match=write), suppress(IndexError):  # of the mask
        np.testing.assert_array_equal(ft.jit(f)(i), f(i))


def test_a_function_of_numpy_that_wants_plain_numbers_is_named():
    for f in (lambda v: np.interp(-1.0, [0.0, 1.0], [0.0, 1.0], left=v),
              lambda v: np.interp(2.0, [0.0, 1.0], [0.0, 1.0], None, v)):
        with pytest.raises(ConcretizationError, match=r"np\.interp\(.*\) got .* "
                           r"Take functrans\.numpy\.interp, where it has one"):
            ft.grad(f)(5.0)


@pytest.mark.parametrize("reduce", [np.sum, np.prod, np.max, np.min, np.add.reduce,
                                    np.logaddexp.reduce, np.maximum.reduce])
@pytest.mark.parametrize("transform", [
    ft.grad, ft.derivative, lambda f: lambda t: ft.vmap(f)(np.array([t]))])
def test_an_initial_value_of_numpy_s_own_reduction_is_named(transform, reduce):
    x = np.array([1.0, 2.0, 3.0])
    with pytest.raises(ConcretizationError, match="would have no derivative"):
        transform(lambda t: reduce(x, initial=t))(0.5)
