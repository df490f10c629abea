"""The keys under which programs are kept on disk: equal for equal programs only."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir.program import Const, Eqn, Program, Var
from functrans._compile.run.frame import Frame
from functrans._compile.run.native import NativeProgram, kept_program
from functrans._compile.run.store import program_key
from functrans._core.array import Aval
from functrans._ops.declare import TABLE, Elementwise

pytestmark = pytest.mark.usefixtures("unoptimised")

X = np.linspace(0.5, 1.0, 6)
M = X.reshape(2, 3)


def key(f, *args):
    return program_key(ft.make_program(f)(*args))


# Each is another program than all others.
DIFFERENT = {
    "one": (lambda x: x * 2.0, X),
    "integer": (lambda x: x * 2, X),
    "boolean": (lambda x: x * True, X),
    "complex": (lambda x: x * (2 + 0j), X),
    "one as integer": (lambda x: x * 1, X),
    "one as float": (lambda x: x * 1.0, X),
    "zero": (lambda x: x + 0.0, X),
    "negative zero": (lambda x: x + -0.0, X),
    "nan": (lambda x: x + np.nan, X),
    "last digit": (lambda x: x * np.nextafter(2.0, 3.0).item(), X),
    "a row": (lambda x: np.sin(x), X),
    "another row": (lambda x: np.cos(x), X),
    "float32": (lambda x: x * 2.0, X.astype("f4")),
    "shorter": (lambda x: x * 2.0, X[:5]),
    "matrix": (lambda x: x * 2.0, M),
    "no axes": (lambda x: x * 2.0, np.float64(1.0)),
    "weak": (lambda x: x * 2.0, 1.0),
    "long": (lambda x: x * 2.0, np.arange(6, dtype="l")),
    "long long": (lambda x: x * 2.0, np.arange(6, dtype="q")),
    "twice": (lambda x: (x * 2.0, x * 2.0), X),
    "shared": (lambda x: (lambda y: (y, y))(x * 2.0), X),
    "two results": (lambda x: (x, x * 2.0), X),
    "in another order": (lambda x: (x * 2.0, x), X),
    "two arguments": (lambda x, y: x - y, X, X),
    "swapped": (lambda x, y: y - x, X, X),
    "one twice": (lambda x, y: x - x, X, X),
    "axis 0": (lambda x: np.sum(x, axis=0), M),
    "axis 1": (lambda x: np.sum(x, axis=1), M),
    "both axes": (lambda x: np.sum(x), M),
    "slice": (lambda x: x[1:], X),
    "slice from the end": (lambda x: x[:-1], X),
    "entry": (lambda x: x[1], X),
    "cast": (lambda x: x.astype("f4"), X),
    "cast to integer": (lambda x: x.astype("i4"), X),
    "constant": (lambda x: x * np.arange(6.0), X),
    "other constant": (lambda x: x * np.arange(1.0, 7.0), X),
    "integer constant": (lambda x: x * np.arange(6), X),
    "constant in order": (lambda x: x @ np.arange(4.0).reshape(2, 2), np.ones(2)),
    "constant in another order": (lambda x: x @ np.arange(4.0).reshape(2, 2, order="F"),
                                  np.ones(2)),
    "constant without entries": (lambda x: (x * 2.0, np.zeros((0, 3))), X),
    "constant result": (lambda x: 2.0, X),
    "constant array result": (lambda x: np.arange(6.0), X),
    "scan": (lambda x: ft.scan(lambda c, v: (c * v - 1, None), 1.0, x)[0], X),
    "scan backwards": (
        lambda x: ft.scan(lambda c, v: (c * v - 1, None), 1.0, x, reverse=True)[0], X),
    "any steps": (lambda x: ft.while_loop(lambda c: c < 9, lambda c: 2 * c, x), np.float64(1.0)),
    "three steps": (
        lambda x: ft.while_loop(lambda c: c < 9, lambda c: 2 * c, x, max_steps=3), np.float64(1.0)),
    "another test": (lambda x: ft.while_loop(lambda c: c < 8, lambda c: 2 * c, x), np.float64(1.0)),
}


def test_different_programs_have_different_keys():
    keys = {name: key(f, *args) for name, (f, *args) in DIFFERENT.items()}
    for a, b in itertools.combinations(keys, 2):
        assert keys[a] is not None and keys[a] != keys[b], (a, b)


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_program_staged_again_has_its_key_again(name):
    f, *args = DIFFERENT[name]
    assert key(f, *args) == key(f, *args)


def test_a_key_depends_on_all_that_it_is_given():
    program = ft.make_program(np.sin)(X)
    assert len({program_key(program), program_key(program, "a"), program_key(program, "a", "b"),
                program_key(program, "ab")}) == 4


def test_a_program_of_which_not_all_is_known_has_none():
    five = Elementwise("sin", lambda x: np.multiply(x, 5), (lambda g: g * 5,), 1, False)
    assert key(lambda x: five(x), X) is None
    assert key(lambda x: x * np.arange(1e5), np.float64(1.0)) is None
    assert key(lambda x: x, X.astype(ml_dtypes.bfloat16)) is None


@pytest.mark.parametrize("params", [{"axis": X}, {"f": len}, {"axis": np.int64(0)},
                                    {"axes": (0, (1, object()))}])
def test_a_parameter_of_unknown_type_has_none(params):
    x, y = Var(Aval((6,), np.dtype("d"))), Var(Aval((), np.dtype("d")))
    assert program_key(Program((x,), (Eqn(TABLE["sum"], (x,), params, (y,)),), (y,))) is None


def test_a_program_in_a_parameter_is_part_of_the_key():
    x, y = Var(Aval((6,), np.dtype("d"))), Var(Aval((), np.dtype("d")))

    def holding(f):
        params = {"body": ft.make_program(f)(X), "axis": (0,)}
        return program_key(Program((x,), (Eqn(TABLE["sum"], (x,), params, (y,)),), (y,)))

    assert holding(np.sin) == holding(np.sin) != holding(np.cos)
    assert holding(lambda x: x * np.arange(1e5)[0]) is not None
    assert holding(lambda x: x[:1] * np.arange(1e5)) is None


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_kept_returns_what_was_compiled(name):
    f, *args = DIFFERENT[name]
    program = ft.make_program(f)(*args)
    compiled = NativeProgram(program, key=key(f, *args))
    outputs = compiled(args)  # code is kept once it has been verified
    kept = kept_program(key(f, *args))
    assert (kept is None) == (not compiled.frame.segments)
    if kept is not None:
        for y, e in zip(kept(args), outputs, strict=True):
            np.testing.assert_array_equal(y, e)
            assert type(y) is np.ndarray and y.flags.writeable and y.dtype is e.dtype
        with pytest.raises(TypeError, match=r"takes \d values, not 0"):
            kept([])


def test_a_frame_is_read_as_it_was_written():
    constant = Const(np.arange(600.0).reshape(100, 6))
    program = ft.make_program(lambda x, s, n: (x * s, x, np.sum(constant.value * x, axis=1), n))
    frame = NativeProgram(program(X, 1.5, 2)).frame
    again = Frame.read(frame.text())
    assert again.text() == frame.text() != ""
    for x, y in zip(frame.constants, again.constants, strict=True):
        np.testing.assert_array_equal(x, y)
    assert again._replace(constants=()) == frame._replace(constants=())


def test_a_frame_of_many_constants_is_not_kept():
    big = np.arange(20_000.0)
    frame = NativeProgram(ft.make_program(lambda x: x * big)(np.float64(1.0))).frame
    assert len(frame.segments) == len(frame.runs) == 1 and frame.text() == ""


def test_code_that_threads_share_is_kept():
    x = np.random.default_rng(0).normal(size=(400_000, 3))
    program = ft.make_program(lambda x: (np.exp(x) * np.sin(x), np.sum(np.exp(-x * x)), x))(x)
    compiled = NativeProgram(program, key=program_key(program))
    assert max(segment.chunks for segment in compiled.frame.segments) > 1
    outputs = compiled([x])
    kept = kept_program(program_key(program))  # type: ignore[arg-type]  # it has one
    assert kept is not None
    for y, e in zip(kept([x]), outputs, strict=True):
        np.testing.assert_array_equal(y, e)


def test_code_with_steps_of_numpys_is_kept_without_its_frame():
    program = ft.make_program(lambda a: np.linalg.pinv(a) + 1)(np.eye(3))
    compiled = NativeProgram(program, key=program_key(program))
    compiled([np.eye(3)])
    assert compiled.frame.text() == "" and kept_program(program_key(program)) is None  # type: ignore[arg-type]  # it has one
