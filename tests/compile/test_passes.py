"""Passes keep every bit of what a program computes; golden programs show what they do."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functrans as ft
from functrans._compile.ir.passes import dead_code, fold, optimise, rewrite, share
from functrans._compile.ir.program import Const, Eqn, Program, Var, check, evaluate, types_of
from functrans._compile.ir.rewrites import RULES, Rule
from functrans._core.array import Aval
from functrans._ops import elementwise as ops
from functrans._ops.declare import isnan, strong_multiply
from functrans._ops.indexing import WHOLE, getitem, put_add, scatter_set
from functrans._ops.linalg import inv
from functrans._ops.reductions import sum as sum_
from functrans._ops.structure import astype, broadcast_to, concatenate, reshape, stack, transpose

F64, F32 = np.dtype(np.float64), np.dtype(np.float32)
PASSES = [dead_code, fold, share, rewrite, optimise]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 5e-324, -1e308, 0.3, -2.7, 1e16]


def same_bits(a, b):
    """Equal to the bit; of NaNs there is one."""
    a, b = np.asarray(a), np.asarray(b)
    assert (a.shape, a.dtype) == (b.shape, b.dtype)
    if a.dtype.kind == "c":
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return bool(((np.isnan(a) & np.isnan(b)) | ((a == b) & (np.signbit(a) == np.signbit(b)))).all())


def drawn(aval, seed, special):
    rng = np.random.default_rng(seed)
    x = rng.choice(SPECIAL, aval.shape) if special else rng.standard_normal(aval.shape)
    if aval.dtype.kind == "c":
        y = np.empty(aval.shape, aval.dtype)
        y.real, y.imag = x, drawn(Aval(aval.shape, F64), seed + 1, special)
        return y
    if aval.dtype.kind in "iu":
        return rng.integers(0, 3, aval.shape).astype(aval.dtype)
    if aval.dtype.kind == "b":
        return rng.integers(0, 2, aval.shape).astype(bool)
    with np.errstate(all="ignore"):
        return np.asarray(x, aval.dtype)


def values(program, seed, special):
    xs = [drawn(v.aval, seed + i, special) for i, v in enumerate(program.inputs)]
    return [x.item() if v.weak else x for x, v in zip(xs, program.inputs, strict=True)]


def disagreement(p, q, draws=4):
    """The inputs on which two programs differ, None if there are none."""
    assert p.inputs == q.inputs
    for seed, special in itertools.product(range(draws), (False, True)):
        args = values(p, seed, special)
        with np.errstate(all="ignore"):
            pairs = zip(evaluate(p, args), evaluate(q, args), strict=True)
            if not all(same_bits(a, b) for a, b in pairs):
                return args
    return None


def assert_kept(p, run=optimise):
    q = check(run(p))
    assert len(q.eqns) <= len(p.eqns)
    assert [_type(a) for a in q.outputs] == [_type(a) for a in p.outputs]
    assert disagreement(p, q) is None, f"{p}\n{q}"
    assert run(q) is q  # once is enough
    return q


def _type(a):
    return (a.aval, isinstance(a, Var) and a.weak) if isinstance(a, Var | Const) else a


# ---- programs that the library writes


def smooth(x):
    return np.sum(np.tanh(x) ** 2 * np.exp(-x) + (x * 1.0) / (1 + x * x))


def edgy(x):
    return np.sum(np.maximum(x, 0.1) * np.sqrt(np.abs(x)) - np.where(x > 0, np.log(x * x), 0))


def indexed(x):
    return np.sum(x[1:] ** 2 - np.sqrt(np.abs(x[:-1]))) + np.stack([x[0], x[1]])[1]


def matrix(x):
    a = np.reshape(x, (2, 2))
    return np.sum(np.dot(a, a.T) / np.linalg.norm(a)) + np.trace(a.T.T) + np.prod(x)


def stable(x):
    s = np.exp(x - np.max(x)) / np.sum(np.exp(x - np.max(x)))
    return np.std(s) + np.mean(np.concatenate([s, x * -1.0]))


FUNCTIONS = [smooth, edgy, indexed, matrix, stable]
TRANSFORMS = {
    "value": lambda f: f,
    "grad": ft.grad,
    "value_and_grad": ft.value_and_grad,
    "grad_grad": lambda f: ft.grad(lambda x: np.sum(np.sin(ft.grad(f)(x)))),
    "hessian": ft.hessian,
    "vmap_grad": lambda f: ft.vmap(ft.grad(f)),
    "jvp": lambda f: lambda x: ft.jvp(f, (x,), (np.cos(x),)),
    "jvp_of_grad": lambda f: lambda x: ft.jvp(ft.grad(f), (x,), (np.ones_like(x),)),
    "jet": lambda f: lambda x: ft.jet(f, (x,), ([np.ones(4), np.zeros(4)],)),
}


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_optimised_programs_of_transforms_compute_the_same_bits(f, transform):
    x = np.array([0.3, -1.2, 0.9, 2.0])
    x = np.stack([x, x[::-1]]) if transform.startswith("vmap") else x
    program = ft.make_program(TRANSFORMS[transform](f))(x)
    assert_kept(program)


@pytest.mark.parametrize("f", [smooth, indexed], ids=lambda f: f.__name__)
def test_float32_programs_stay(f):
    assert_kept(ft.make_program(ft.grad(f))(np.ones(4, F32)))


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_derivatives_of_an_optimised_program_are_the_same(f):
    p = ft.make_program(f)(np.ones(4))
    q = optimise(p)
    x = np.array([0.3, -1.2, 0.9, 2.0])
    want, got = [ft.hessian(lambda x, r=r: evaluate(r, [x])[0])(x) for r in (p, q)]
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


# ---- programs that hypothesis builds

UNARY = [
    ops.negative, ops.positive, ops.conjugate, ops.real, ops.square, ops.absolute, ops.sign,
    ops.sqrt, ops.floor,
]  # fmt: skip
BINARY = [
    ops.add, ops.subtract, ops.multiply, ops.divide, strong_multiply, ops.maximum, ops.minimum,
    ops.ratio, ops.power,
]  # fmt: skip
NUMBERS = [1.0, -1.0, 0.0, -0.0, 2.0, 1, 0, -1, True]
NUMBERS += [np.float64(-0.0), np.float64(1), np.float32(2)]


@st.composite
def programs(draw):
    """A well-typed program of up to 25 equations, rich in what the rules look for."""
    avals = [Aval((2, 3), F64), Aval((3,), F64), Aval((), F64), Aval((2, 3), F32),
             Aval((3,), np.dtype(np.int64)), Aval((2, 3), np.dtype(complex))]  # fmt: skip
    inputs = [Var(a) for a in avals] + [Var(Aval((), F64), weak=True)]
    atoms, eqns = list(inputs), []

    def emit(prim, *xs, **params):
        try:
            with np.errstate(all="ignore"):
                (aval,) = types_of(Eqn(prim, xs, params, ()))
        except (TypeError, ValueError):
            return  # the types do not fit
        raises = prim is ops.power and aval.dtype.kind in "iu"  # at negative exponents
        if aval.size <= 64 and aval.dtype.kind in "biufc" and not raises:
            eqns.append(Eqn(prim, xs, params, (Var(aval),)))
            atoms.append(eqns[-1].outputs[0])

    for _ in range(draw(st.integers(1, 25))):
        # mostly recent values, so that chains form
        x = atoms[-1 - min(draw(st.integers(0, 9)), len(atoms) - 1)]
        if x.weak and draw(st.booleans()):
            continue
        kind = draw(st.sampled_from(["unary", "binary", "number", "splat", "shape", "where"]))
        if kind == "unary":
            emit(draw(st.sampled_from(UNARY)), x)
        elif kind == "binary":
            emit(draw(st.sampled_from(BINARY)), x, draw(st.sampled_from(atoms)))
        elif kind in ("number", "splat"):
            c = draw(st.sampled_from(NUMBERS))
            if kind == "splat" or isinstance(c, np.generic):
                c = Const(np.full(x.aval.shape if kind == "splat" else (), c))
            pair = (x, c) if draw(st.booleans()) else (c, x)
            emit(draw(st.sampled_from(BINARY)), *pair)
        elif kind == "where":
            c = draw(st.sampled_from([True, False, Const(np.array([True, False, True]))]))
            emit(ops.where, c, x, draw(st.sampled_from([x, *atoms])))
        else:
            _reshaping(draw, emit, x, atoms)
    outputs = draw(st.lists(st.sampled_from(atoms[len(inputs) :] or atoms), min_size=1, max_size=3))
    return check(Program(tuple(inputs), tuple(eqns), (*outputs, *atoms[-1:])))


def _reshaping(draw, emit, x, atoms):
    shape = x.aval.shape
    which = draw(st.integers(0, 9))
    if which == 0:
        emit(reshape, x, shape=draw(st.sampled_from([shape, (x.aval.size,), (1, *shape)])))
    elif which == 1:
        axes = tuple(draw(st.permutations(range(len(shape)))))
        emit(transpose, x, axes=axes)
    elif which == 2:
        emit(broadcast_to, x, shape=draw(st.sampled_from([shape, (2, *shape)])))
    elif which == 3:
        emit(astype, x, dtype=draw(st.sampled_from([F64, F32, x.aval.dtype])))
    elif which == 4:
        emit(sum_, x, axis=draw(st.sampled_from([(), tuple(range(len(shape)))])))
    elif which == 5 and shape:
        index = st.sampled_from([WHOLE, (0, shape[0], None), (1, None, None), 0, Ellipsis])
        emit(getitem, x, pattern=(draw(index),))
    elif which == 6:
        emit(concatenate, x, axis=0) if shape else None
    elif which == 7:
        emit(stack, x, x, axis=len(shape))
        emit(getitem, atoms[-1], pattern=(*[WHOLE] * len(shape), draw(st.sampled_from([0, -1]))))
    elif which == 8 and shape:
        pattern = ((1, 1 + shape[0], None),)
        emit(put_add, x, pattern=pattern, shape=(shape[0] + 2, *shape[1:]))
        emit(getitem, atoms[-1], pattern=pattern)
    elif shape == ():
        emit(broadcast_to, x, shape=(2, 3))


@given(programs())
def test_every_pass_keeps_every_bit(program):
    for run in PASSES:
        assert_kept(program, run)


# ---- each rule, by itself

VEC, MAT, NUM = Aval((3,), F64), Aval((2, 3), F64), Aval((), F64)


def chain(aval, *steps):
    """A program of one input: each step is (prim, operands, params); "x" is the step before, "x1"
    the first."""
    start = Var(aval)
    values, eqns = {"a": start, "x": start}, []
    for prim, operands, params in steps:
        inputs = tuple(values[o] if isinstance(o, str) else o for o in operands)
        out = Var(*types_of(Eqn(prim, inputs, params, ())))
        eqns.append(Eqn(prim, inputs, params, (out,)))
        values["x"] = out
        values[f"x{len(eqns)}"] = out
    return check(Program((start,), tuple(eqns), (values["x"],)))


def one(prim, *operands, **params):
    return prim, operands, params


NEG = one(ops.negative, "x")
FIRE = {
    "an operand broadcast by the op itself": (
        VEC, one(broadcast_to, "x", shape=(2, 3)), one(ops.add, "x", Const(np.eye(2, 3)))
    ),
    "strong zero, one factor tame: x * y": (VEC, one(strong_multiply, "x", 2.0)),
    "a product, strong where it is NaN: strong": (
        VEC, one(ops.sin, "a"), one(ops.multiply, "x", "a"), one(strong_multiply, "x1", "a"),
        one(isnan, "x2"), one(ops.where, "x", "x3", "x2")
    ),
    "x * 1 = x": (VEC, one(ops.multiply, Const(np.ones(3)), "x")),
    "x * -1 = -x": (VEC, one(ops.multiply, "x", -1)),
    "x / 1 = x": (VEC, one(ops.divide, "x", 1)),
    "x ** 1 = x": (VEC, one(ops.power, "x", 1.0)),
    "x - 0 = x": (VEC, one(ops.subtract, "x", 0)),
    "x + -0 = x": (VEC, one(ops.add, -0.0, "x")),
    "-(-x) = x": (VEC, NEG, NEG),
    "+x = x": (VEC, one(ops.positive, "x")),
    "x + -y = x - y": (VEC, NEG, one(ops.add, "x", Const(np.array([1.0, -0.0, 0.0])))),
    "-x * -y = x * y": (VEC, NEG, one(ops.divide, "x", "x")),
    "x * x = square x": (VEC, one(ops.multiply, "x", "x")),
    "a choice that is known": (VEC, one(ops.where, Const(np.ones(3, bool)), "x", 0.0)),
    "a part of a real number": (VEC, one(ops.real, "x")),
    "conjugate twice": (
        Aval((3,), np.dtype(complex)), one(ops.conjugate, "x"), one(ops.conjugate, "x")
    ),
    "sum over no axes": (VEC, one(sum_, "x", axis=())),
    "transpose twice, or in place": (
        MAT, one(transpose, "x", axes=(1, 0)), one(transpose, "x", axes=(1, 0))
    ),
    "to the same shape": (MAT, one(reshape, "x", shape=(2, 3))),
    "reshape or broadcast twice": (
        MAT, one(reshape, "x", shape=(6,)), one(reshape, "x", shape=(3, 2))
    ),
    "to the same dtype": (VEC, one(astype, "x", dtype=F64)),
    "an index of everything": (MAT, one(getitem, "x", pattern=(Ellipsis, (0, 3, None)))),
    "everything written": (
        MAT, one(scatter_set, "x", Const(np.arange(6.0).reshape(2, 3)), pattern=(Ellipsis, WHOLE))
    ),
    "every part written": (
        NUM, one(scatter_set, Const(np.zeros(2)), "a", pattern=(-1,)),
        one(ops.negative, "a"), one(scatter_set, "x1", "x2", pattern=(0,))
    ),
    "an entry of a stack": (
        VEC, one(stack, Const(np.ones(3)), "x", axis=1), one(getitem, "x", pattern=(WHOLE, 1))
    ),
}  # fmt: skip


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name)
def test_each_rule_fires_and_is_exact(rule):
    program = chain(*FIRE[rule.name])
    found = rewrite(program, [rule])
    assert found is not program
    assert disagreement(program, found, draws=20) is None
    assert derivatives_that_differ(program, found) == []


def derivatives_that_differ(p, q):
    """Orders and points at which derivatives of two programs of one array are not alike."""
    aval, faults = p.inputs[0].aval, []
    for name, x in ("zero", np.zeros(aval.shape, aval.dtype)), ("drawn", drawn(aval, 7, False)):
        for order in (1, 2):
            with np.errstate(all="ignore"):
                want, got = [_derivative(r, x, order) for r in (p, q)]
            if not np.allclose(got, want, rtol=1e-13, atol=1e-13, equal_nan=True):
                faults.append((order, name))
    return faults


def _derivative(program, x, order):
    def slope(x):
        y, pullback = ft.vjp(lambda x: evaluate(program, [x])[0], x)
        return pullback(np.arange(1.0, y.size + 1).reshape(y.shape).astype(y.dtype))[0]

    return slope(x) if order == 1 else ft.jvp(slope, (x,), (np.ones_like(x),))[1]


KEPT = {
    "x + 0 loses the sign of -0": (VEC, one(ops.add, "x", 0.0)),
    "an integer 0 is no -0": (VEC, one(ops.add, "x", 0)),
    "x - -0": (VEC, one(ops.subtract, "x", -0.0)),
    "0 * x": (VEC, one(ops.multiply, "x", 0.0)),
    "1 / x": (VEC, one(ops.divide, 1.0, "x")),
    "a choice that is known in part": (
        VEC, one(ops.where, Const(np.array([True, False, True])), "x", 0.0)
    ),
    "a choice of arrays that is known in part": (
        VEC, one(ops.where, Const(np.array([True, False, True])), "x", Const(np.arange(3.0)))
    ),
    "complex x * 1": (Aval((3,), np.dtype(complex)), one(ops.multiply, "x", 1)),
    "an integer divided by 1 is a float": (
        Aval((3,), np.dtype(int)), one(ops.divide, "x", 1)
    ),
    "1 promotes": (Aval((3,), F32), one(ops.multiply, "x", Const(np.ones(())))),
    "1 broadcasts": (VEC, one(ops.multiply, "x", Const(np.eye(2, 3) * 0 + 1 + np.eye(2, 3)))),
    "strong zero may matter": (VEC, one(strong_multiply, "x", Const(np.array([1.0, 0, 2])))),
    "a least integer cannot be negated": (
        Aval((3,), np.dtype(np.int32)), NEG, one(ops.add, "x", Const(np.arange(3)))
    ),
    "a float is +0 along the imaginary axis": (
        VEC, NEG, one(ops.add, "x", Const(np.array([1 - 0j, 2j, 3])))
    ),
    "part of an axis": (VEC, one(getitem, "x", pattern=((0, 2, None),))),
    "backwards": (VEC, one(getitem, "x", pattern=((None, None, -1),))),
    "a sum over an axis": (MAT, one(sum_, "x", axis=(0,))),
    "written backwards": (
        VEC, one(scatter_set, "x", Const(np.arange(3.0)), pattern=((None, None, -1),))
    ),
    "every part of what may be read elsewhere": (
        Aval((2,), F64), one(scatter_set, "x", Const(np.ones(())), pattern=(0,)),
        one(scatter_set, "x", Const(np.zeros(())), pattern=(1,))
    ),
    "one part written twice": (
        NUM, one(scatter_set, Const(np.zeros(2)), "a", pattern=(1,)),
        one(scatter_set, "x", "a", pattern=(-1,))
    ),
    "parts of another dtype": (
        Aval((), F32), one(scatter_set, Const(np.zeros(1)), "a", pattern=(0,))
    ),
    "a number written everywhere": (
        VEC, one(scatter_set, "x", Const(np.ones(())), pattern=(WHOLE,))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_what_only_looks_alike_is_kept(name):
    program = chain(*KEPT[name])
    assert rewrite(program) is program


# ---- the checks bite

WRONG = {
    "x + 0 = x": (ops.add, lambda eqn, made: eqn.inputs[0] if eqn.inputs[1] == 0 else None),
    "x * 0 = x - x": (
        ops.multiply,
        lambda eqn, made: Eqn(ops.subtract, (eqn.inputs[0],) * 2, {}, eqn.outputs)
        if eqn.inputs[1] == 0
        else None,
    ),
    "maximum(x, y) = x": (ops.maximum, lambda eqn, made: eqn.inputs[0]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_caught(name):
    prim, replace = WRONG[name]
    program = chain(VEC, one(prim, "x", 0.0), one(ops.divide, 1.0, "x"))
    wrong = rewrite(program, [Rule(name, (prim,), replace)])
    assert wrong is not program
    assert disagreement(program, wrong) is not None


def test_a_rule_whose_values_alone_are_right_is_caught():
    def without_sign(eqn, producers):
        made = producers.get(eqn.inputs[0])
        is_absolute = made is not None and made.prim is ops.absolute
        return Eqn(ops.square, made.inputs, {}, eqn.outputs) if is_absolute else None

    program = chain(VEC, one(ops.absolute, "x"), one(ops.square, "x"))
    wrong = rewrite(program, [Rule("square |x| = square x", (ops.square,), without_sign)])
    assert disagreement(program, wrong) is None
    assert derivatives_that_differ(program, wrong) == [(2, "zero")]


def test_a_rule_cannot_change_a_type():
    program = chain(VEC, one(ops.multiply, "x", Const(np.eye(3))))
    shrink = Rule("x * y = x", (ops.multiply,), lambda eqn, made: eqn.inputs[0])
    assert rewrite(program, [shrink]) is program


def test_an_op_that_reads_what_a_pass_removed_is_caught():
    program = chain(VEC, NEG, one(ops.exp, "x"))
    with pytest.raises(AssertionError, match="before it is defined"):
        check(Program(program.inputs, program.eqns[1:], program.outputs))


# ---- golden programs


def text(program):
    return "\n".join(line.split("  #")[0].rstrip() for line in repr(program).splitlines())


def test_dead_code_keeps_what_outputs_need():
    program = ft.make_program(lambda x, y: (np.sin(x), np.cos(x))[0])(1.0, 2.0)
    assert text(dead_code(program)) == (
        "{ lambda a:weak float64[], b:weak float64[]\n  c:float64[] = sin a\n  return c }"
    )


def test_equal_equations_are_shared_whatever_the_order_of_factors():
    f = lambda x, y: np.sin(x * y) - np.sin(y * x) * 2  # noqa: E731  # reads as a formula
    program = ft.make_program(f)(np.ones(2), np.ones(2))
    assert text(share(program)) == (
        "{ lambda a:float64[2], b:float64[2]\n"
        "  c:float64[2] = multiply a b\n"
        "  d:float64[2] = sin c\n"
        "  e:float64[2] = multiply d 2\n"
        "  f:float64[2] = subtract d e\n"
        "  return f }"
    )


def test_sharing_tells_zeros_types_and_parameters_apart():
    x = Var(VEC)
    operands = [0.0, -0.0, 0, False, Const(np.array(0.0)), Const(np.array(-0.0)),
                Const(np.array(0.0, F32)), Const(np.array(0))]  # fmt: skip
    eqns = tuple(Eqn(ops.copysign, (x, c), {}, (Var(VEC),)) for c in operands)
    sums = tuple(Eqn(sum_, (x,), {"axis": a}, (Var(v),)) for a, v in [((), VEC), ((0,), NUM)])
    program = Program((x,), eqns + sums, tuple(e.outputs[0] for e in eqns + sums))
    assert share(check(program)) is program


def test_equal_constants_are_held_once():
    program = ft.make_program(lambda x: (x + np.arange(3.0)) * np.arange(3.0))(np.ones(3))
    assert (len(program.consts), len(share(program).consts)) == (2, 1)


def test_constants_are_folded_but_not_blown_up():
    x = Var(VEC)
    c, d = Var(VEC), Var(Aval((5000,), F64))
    program = Program(
        (x,),
        (
            Eqn(ops.exp, (Const(np.zeros(3)),), {}, (c,)),
            Eqn(broadcast_to, (Const(np.array(1.0)),), {"shape": (5000,)}, (d,)),
            Eqn(ops.exp, (Const(np.zeros(5000)),), {}, (e := Var(Aval((5000,), F64)),)),
        ),
        (c, d, e),
    )
    found = fold(check(program))
    assert [q.prim.name for q in found.eqns] == ["broadcast_to", "exp"]
    assert isinstance(found.outputs[0], Const)
    assert found.outputs[0].value.tolist() == [1.0, 1.0, 1.0]
    assert not found.outputs[0].value.flags.writeable


def test_a_singular_constant_is_left_to_raise_when_it_runs():
    v = Var(Aval((2, 2), F64))
    program = Program((), (Eqn(inv, (Const(np.zeros((2, 2))),), {}, (v,)),), (v,))
    assert optimise(program) is program


def test_gradient_of_a_quotient():
    program = ft.make_program(ft.grad(lambda x: np.sum((x * 1.0) / (1 + x * x))))(np.ones(3))
    assert text(optimise(program)) == (
        "{ lambda a:float64[3]\n"
        "  b:float64[3] = square a\n"
        "  c:float64[3] = add 1 b\n"
        "  d:float64[3] = divide a c\n"
        "  e:float64[3] = divide 1.0 c\n"
        "  f:float64[3] = negative d\n"
        "  g:float64[3] = divide f c\n"
        "  h:float64[3] = strong_multiply g a\n"
        "  i:float64[3] = add h h\n"
        "  j:float64[3] = add i e\n"
        "  return j }"
    )


def test_an_output_that_is_an_input_or_a_constant():
    program = ft.make_program(lambda x: (x * 1.0, np.exp(np.zeros(2)), 3.0, +x))(np.ones(2))
    found = optimise(program)
    assert found.eqns == ()
    assert found.outputs[0] is found.outputs[3] is found.inputs[0]
    assert found.outputs[2] == 3.0


def test_checking_a_quotient_of_scalars_does_not_warn():
    program = ft.make_program(lambda c: c / 0.0)
    with np.errstate(all="raise"):
        assert len(program(2.0).eqns) == 1


def test_optimising_is_deterministic():
    program = ft.make_program(ft.hessian(stable))(np.ones(4))
    assert repr(optimise(program)) == repr(optimise(program))


def test_every_pass_looks_at_each_equation_once():
    seen = []
    spy = Rule("count", (ops.sin,), lambda eqn, made: seen.append(eqn))
    x = Var(VEC)
    eqns, last = [], x
    for _ in range(1000):
        eqns.append(Eqn(ops.sin, (last,), {}, (Var(VEC),)))
        last = eqns[-1].outputs[0]
    rewrite(Program((x,), tuple(eqns), (last,)), [spy])
    assert len(seen) == 1000


def test_strong_product_is_entry_by_entry():
    # whether other entries are infinite must not change the sign of a zero
    alone = strong_multiply(np.array([-0.0]), np.array([2.0]))
    beside = strong_multiply(np.array([-0.0, np.inf]), np.array([2.0, 2.0]))
    assert np.signbit(alone[0])
    assert np.signbit(beside[0])
