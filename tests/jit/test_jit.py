"""``jit``: the same values as without it, alone and under and over every other transform."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans import errors
from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._compile.run import native
from functrans._compile.run.machine import NativeUnavailable
from functrans._ops.declare import Elementwise
from functrans._transforms.staging.jit import Jitted

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = np.array([0.3, 0.7, 1.2])
A = np.array([[2.0, 0.5, 0.1], [0.5, 3.0, 0.2], [0.1, 0.2, 1.5]])

FUNCTIONS = {
    "elementwise": lambda x: np.sum(np.exp(-x * x) * np.sin(3 * x) + np.log1p(x * x)),
    "slices": lambda x: np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2),
    "linalg": lambda x: x @ np.linalg.solve(A + np.diag(x), x) + np.linalg.slogdet(A * x[0])[1],
    "reductions": lambda x: np.max(x) * np.prod(x) + np.std(x) + np.cumsum(x)[1],
    "joining": lambda x: np.concatenate([x, x**2])[::2].sum() + np.stack([x, x]).T.reshape(-1)[3],
    "where": lambda x: np.where(x > 0.5, np.sqrt(x), x**3).sum() + np.clip(x, 0.4, 1.0).prod(),
    "einsum": lambda x: np.einsum("i,ij,j->", x, A, x) + np.outer(x, x)[1, 2],
}

COMPOSITIONS = {
    "jit": lambda f: ft.jit(f),
    "jit(grad)": lambda f: ft.jit(ft.grad(f)),
    "grad(jit)": lambda f: ft.grad(ft.jit(f)),
    "jit(hessian)": lambda f: ft.jit(ft.hessian(f)),
    "hessian(jit)": lambda f: ft.hessian(ft.jit(f)),
    "jacrev(jit(grad))": lambda f: ft.jacrev(ft.jit(ft.grad(f))),
    "jacfwd(jit(grad(jit)))": lambda f: ft.jacfwd(ft.jit(ft.grad(ft.jit(f)))),
    "hvp(jit)": lambda f: lambda x: ft.hvp(ft.jit(f), x, x)[1],
    "jit(vhp)": lambda f: ft.jit(lambda x: ft.vhp(f, x, x)[1]),
    "linearize(jit)": lambda f: lambda x: ft.linearize(ft.jit(f), x)[1](x),
    "jit(linearize)": lambda f: ft.jit(lambda x: ft.linearize(f, x)[1](x)),
    "vmap(jit(grad))": lambda f: lambda x: ft.vmap(ft.jit(ft.grad(f)))(np.stack([x, 2 * x])),
    "jit(vmap(grad))": lambda f: lambda x: ft.jit(ft.vmap(ft.grad(f)))(np.stack([x, 2 * x])),
    "grad(vmap(jit))": lambda f: ft.grad(lambda x: ft.vmap(ft.jit(f))(np.stack([x, x])).sum()),
    "jet(jit)": lambda f: lambda x: ft.jet(ft.jit(f), (x,), ((x, x),))[1][1],
    "jit(jet)": lambda f: ft.jit(lambda x: ft.jet(f, (x,), ((x, x),))[1][1]),
    "jit(jit)": lambda f: ft.jit(lambda x: ft.jit(f)(2 * x)),
}


def without_jit(make, f, x):
    with ft.config(jit=False):
        return make(f)(x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_every_composition_agrees_with_eager(composition, name):
    make, f = COMPOSITIONS[composition], FUNCTIONS[name]
    expected = without_jit(make, f, X)
    # vector functions are within 4 ulp, and sums are reassociated
    assert_allclose(make(f)(X), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
def test_other_dtypes(dtype):
    x = (X * 10).astype(dtype)
    y = ft.jit(lambda x: x * 2 + np.abs(x))(x)
    assert y.dtype == (x * 2 + np.abs(x)).dtype
    assert_allclose(y, x * 2 + np.abs(x))


def test_containers_keywords_and_strings():
    @ft.jit
    def f(p, *, scale, mode):
        return {"y": p["w"] * scale if mode == "times" else p["w"] + scale, "b": p["b"]}

    for mode, expected in (("times", X * 2.0), ("plus", X + 2.0)):
        out = f({"w": X, "b": 1.0}, scale=2.0, mode=mode)
        assert_array_equal(out["y"], expected)
        assert out["b"] == 1.0


def test_static_arguments_are_values():
    by_position = ft.jit(lambda n, x: sum(x * k for k in range(n)), static_argnums=0)
    by_name = ft.jit(lambda n, x: sum(x * k for k in range(n)), static_argnames="n")
    assert_array_equal(by_position(3, X), 3 * X)
    assert_array_equal(by_name(n=4, x=X), 6 * X)


def test_an_unhashable_static_argument_is_named():
    with pytest.raises(errors.ArgumentError, match="static argument of `<lambda>`"):
        ft.jit(lambda n, x: x, static_argnums=0)({1, 2}, X)


def test_a_program_on_its_own_has_one_path_and_its_error_names_the_line_and_the_cure():
    with pytest.raises(errors.ConcretizationError, match=r"(?s)test_jit.py.*bool.*np.where.*cond"):
        ft.make_program(lambda x: x if x.sum() > 0 else -x)(X)


def test_one_program_for_each_kind_of_arguments():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or x * 2)
    for x in (X, X + 1, X[::-1], X.astype(np.float32), np.ones((2, 3)), 1.0, 2.0, np.float64(1.0)):
        f(x)
    assert len(runs) == 5  # float64[3], float32[3], float64[2,3], a Python float, float64[]


def test_python_scalars_stay_weak():
    x = X.astype(np.float32)
    assert ft.jit(lambda x, c: x * c)(x, 2.0).dtype == np.float32
    assert ft.jit(lambda x, c: x * c * c)(x, np.float64(2.0)).dtype == np.float64
    assert ft.jit(ft.grad(lambda c, x: (x * c).sum()))(2.0, x) == ft.grad(
        lambda c, x: (x * c).sum()
    )(2.0, x)


def test_programs_kept_are_bounded():
    f = Jitted(lambda x: x, (), (), AS_NUMPY)
    for n in range(200):
        f((np.zeros(n),), {})
    assert len(f.entries) == 128


def test_outputs_are_fresh_when_they_alias_inputs_or_constants():
    c = np.ones(3)
    x = X.copy()
    same, view, const = ft.jit(lambda x: (x, x[1:], c))(x)
    x[:] = 9.0
    c[:] = 9.0
    assert_array_equal(same, X)
    assert_array_equal(view, X[1:])
    assert_array_equal(const, np.ones(3))
    with pytest.raises(errors.ImmutableError):
        same[0] = 1.0


def test_captured_arrays_are_copied_when_staged():
    c = np.ones(3)
    program = ft.make_program(lambda x: x * c)(X)
    c[:] = 5.0
    (const,) = program.consts
    assert_array_equal(const.value, np.ones(3))


def test_closing_over_what_an_outer_transform_traces():
    g = ft.grad(lambda w: ft.jit(lambda x: (x * w * w).sum())(X))(2.0)
    assert_allclose(g, 2 * 2.0 * X.sum())


def test_custom_rules_survive():
    @ft.custom_jvp
    def f(x):
        return np.sin(x)

    f.defjvp(lambda xs, ts: (np.sin(xs[0]), 10 * ts[0]))
    assert ft.grad(ft.jit(f))(1.0) == 10.0
    assert ft.jit(ft.grad(f))(1.0) == 10.0


def test_the_backward_program_gets_only_what_it_reads():
    f = ft.jit(lambda x, y: np.tanh(x + y).sum())
    assert_allclose(ft.grad(f)(X, X), 1 - np.tanh(2 * X) ** 2)
    compiled = Jitted(lambda x, y: np.tanh(x + y).sum(), (), (), AS_NUMPY)
    entry, _ = compiled._entry(compiled.signature.of((X, X), {}))
    assert entry is not None
    ft.grad(lambda x: ft.tree.leaves(compiled((x, X), {}))[0])(X)
    (pair,) = [v for k, v in entry.derived.items() if k[0] == "vjp"]
    assert pair.reads == []  # neither x nor y: tanh's slope is its output's
    assert len(pair.forward.program.outputs) == 2


def test_pullbacks_of_a_compiled_function_may_be_called_again():
    _, pull = ft.vjp(ft.jit(lambda x: (x * x, np.sin(x))), X)
    for scale in (1.0, 2.0):
        (g,) = pull((scale * np.ones(3), np.zeros(3)))
        assert_allclose(g, 2 * scale * X)


def test_config_switches_it_off():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or x)
    with ft.config(jit=False):
        f(X)
        f(X)
        assert not ft.config.jit
    assert len(runs) == 2
    assert ft.config.jit


def test_where_native_code_is_not_to_be_had_numpy_runs_the_program(monkeypatch):
    def unavailable(*args):
        raise NativeUnavailable("no such machine")

    monkeypatch.setattr(native, "NativeProgram", unavailable)
    monkeypatch.setattr(native, "kept_program", lambda key: None)
    f = ft.jit(lambda x: (x * 2, x))
    with pytest.warns(RuntimeWarning, match="through NumPy.*no such machine"):
        double, same = f(X)
    assert_array_equal(double, 2 * X)
    assert not np.shares_memory(same, X)


def test_ops_without_native_code_are_host_steps():
    lowered = ft.jit(lambda x: np.exp(np.linalg.pinv(A) @ x) * np.linalg.norm(x)).lower(X)
    assert "host d = norm2 a" in str(lowered.schedule)
    assert "exp" in lowered.llvm


def test_a_foreign_row_with_the_name_of_one_of_ours_is_not_taken_for_it():
    five = Elementwise("sin", lambda x: np.multiply(x, 5), (lambda g: g * 5,), 1, False)
    assert_array_equal(ft.jit(lambda x: five(x))(X), 5 * X)
    assert_array_equal(ft.jit(ft.grad(lambda x: five(x).sum()))(X), np.full(3, 5.0))


def test_lower_shows_the_program_and_the_reason():
    f = ft.jit(lambda x: np.sum(x * 2.0))
    first = f.lower(X)
    assert "new kind of arguments" in first.reason
    assert f.lower(X).reason == "staged before"
    assert [e.prim.name for e in first.program.eqns] == ["multiply", "sum"]
    assert "multiply" in repr(first)


def test_explain_names_the_op_that_keeps_a_loop_from_being_native():
    def step(c, v):
        return np.sort(c) + v, np.sin(v)

    sorting = ft.jit(lambda x, vs: ft.scan(step, x, vs)[0])
    sorting(X, np.ones(3))
    says = r"compiled, but Python runs a loop or branch for `argsort` at .*test_jit.py:\d+ in"
    assert re.search(says, repr(sorting.explain()))
    plain = ft.jit(lambda x, vs: np.argsort(ft.scan(lambda c, v: (c + v, v), x, vs)[0]))
    plain(X, np.ones(3))
    assert "Python runs" not in repr(plain.explain())


def test_explain_says_what_was_staged_and_compiled_and_why():
    scale = 2.0

    @ft.jit
    def f(x):
        return x * scale if x[0] > 0 else np.sin(x)

    assert repr(f.explain()) == "jit(f): staged 0 times"
    f(X)
    f(-X)
    scale = 3.0
    f(X)
    f.lower(X[:2])
    lines = repr(f.explain()).splitlines()
    assert lines[0] == "jit(f): staged 4 times"
    stagings = [line for line in lines if "staged for" in line]
    assert all([re.search(r"staged for \[float64\[\d\]\] in [\d.]+ ms, \d equations", line)
                for line in stagings])
    assert "new kind of arguments" in stagings[0]
    assert re.search(r"another path, for bool\(\) is False at .*test_jit.py:\d+", stagings[1])
    assert "`scale`, which it reads, has changed" in stagings[2]
    made = [line for line in lines if "ms" in line and line not in stagings]
    ways = "compiled|loaded from disk|runs what was compiled for any [a-z]+, ready"
    assert all([re.search(rf"\d equations: ({ways}) in ", m) for m in made])
    assert "not compiled yet" in lines[-1]


def test_a_log_tells_of_each_staging_and_compilation(caplog):
    f = ft.jit(lambda x: x * 3.5 - 0.25)
    f(X)
    assert not caplog.records
    with ft.config(log="compile"):
        f(X[:2])
        f(X[:2])
    staged, made = [r.getMessage() for r in caplog.records]
    assert "staged for [float64[2]]" in staged and "new kind of arguments" in staged
    assert re.search(r"jit\(<lambda>\): .*float64\[2\].*(compiled|loaded from disk) in", made)
    assert {r.name for r in caplog.records} == {"functrans"}


def test_what_is_left_to_numpy_is_logged(caplog, monkeypatch):
    def unavailable(*args):
        raise NativeUnavailable("no such machine")

    monkeypatch.setattr(native, "NativeProgram", unavailable)
    monkeypatch.setattr(native, "kept_program", lambda key: None)
    monkeypatch.setattr(native, "_warn_once", lambda text: None)
    with ft.config(log="compile"):
        ft.jit(lambda x: x * 2)(X)
    assert "left to NumPy (no such machine)" in caplog.text


def test_make_program_prints_a_line_an_equation():
    program = ft.make_program(lambda x: np.sum(x * 2.0))(X)
    lines = [line.split("  #")[0].rstrip() for line in repr(program).splitlines()]
    assert lines == [
        "{ lambda a:float64[3]",
        "  b:float64[3] = multiply a 2.0",
        "  c:float64[] = sum b [axis=(0,)]",
        "  return c }",
    ]
    assert "test_jit.py" in repr(program)


def test_an_output_that_is_not_a_number():
    with pytest.raises(errors.ArgumentError, match="not a number"):
        ft.jit(lambda x: "text")(X)


def test_a_constant_of_one_number_is_held_once():
    def f(x):
        return np.sum(np.exp(-x) * np.sin(x)) + np.sum(x * np.full(x.shape, 3.0))

    x = np.linspace(0, 1, 100_000)
    program = ft.make_program(ft.grad(f))(x)
    assert sum(c.value.size for c in program.consts) < 10
    np.testing.assert_allclose(ft.jit(ft.grad(f))(x), ft.grad(f)(x), rtol=1e-13)


@pytest.mark.parametrize("first", [0.0, -0.0, np.nan, 2.0])
def test_a_constant_that_is_not_one_number_is_held_whole(first):
    c = np.zeros(5000)
    c[0] = first
    x = np.linspace(-1, 1, 5000)
    got = ft.jit(lambda x: np.copysign(x, c) + c)(x)
    np.testing.assert_array_equal(got, np.copysign(x, c) + c)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(np.copysign(x, c) + c))
