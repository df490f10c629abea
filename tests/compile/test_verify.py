"""Fresh code is compared with its program: planted faults are seen, right code is not accused."""

import inspect
import itertools
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from functrans._compile.ir.program import Var
from functrans._compile.run import frame, verify
from functrans._compile.run.machine import OPTIONS, SAFE, Machine
from functrans._compile.schedule import control, memory
from functrans._core.array import Aval
from functrans.errors import ArgumentError, MiscompilationWarning
from tests.threads import at_once

X = np.linspace(0.5, 2.0, 5)


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Plant a fault: from now on LLVM is given another text, with the options named."""
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path))
    translate = Machine.translate

    def planted(old, new, *, options=(OPTIONS,)):
        def wrongly(self, text, how=OPTIONS):
            wrong = how in options and "METH_FASTCALL" not in text
            return translate(self, text.replace(old, new) if wrong else text, how)

        monkeypatch.setattr(Machine, "translate", wrongly)

    return planted


def compute(x):
    return np.exp(x) * x - 1.0


def test_a_fault_is_seen_named_and_compiled_away(plant):
    plant("fsub", "fadd")
    f = ft.jit(compute)
    said = r"output 0 is off by .*, where its .* compiled again"
    with pytest.warns(MiscompilationWarning, match=said):
        y = f(X)
    np.testing.assert_allclose(y, compute(X), rtol=1e-15)
    for _ in range(2):  # by the shorter way too
        np.testing.assert_array_equal(f(X), y)


def test_what_is_not_finite_is_named(plant):
    plant("fmul", "fdiv")
    with pytest.warns(MiscompilationWarning, match="not finite where it should be"):
        ft.jit(lambda x: x * 0.0)(X)


def test_what_is_kept_after_a_fault_is_right(plant):
    plant("fsub", "fadd")
    with pytest.warns(MiscompilationWarning):
        y = ft.jit(compute)(X)
    assert len(ft.cache.entries()) >= 1
    np.testing.assert_array_equal(ft.jit(compute)(X), y)  # from disk: nothing warns


def test_numpy_runs_what_no_options_make_right(plant):
    plant("fsub", "fadd", options=(OPTIONS, SAFE))
    f = ft.jit(compute)
    with pytest.warns(MiscompilationWarning, match="NumPy runs the program"):
        y = f(X)
    np.testing.assert_array_equal(y, compute(X))
    np.testing.assert_array_equal(f(X + 1), compute(X + 1))
    assert not [e for e in ft.cache.entries() if "float64[5]" in e.program]


@pytest.mark.parametrize("n", [10_000, 1_000_000])
@pytest.mark.parametrize("f", [
    compute, ft.grad(lambda x: np.sum(compute(x))), lambda x: (compute(x), np.sum(x)),
    lambda x: np.reshape(compute(np.reshape(x, (-1, 10)) - np.arange(10.0)), -1),
], ids=["map", "gradient", "beside a sum", "rows"])
def test_a_fault_is_seen_in_large_arrays(plant, f, n):
    x = np.linspace(0.5, 2.0, n)
    plant("fmul", "fadd")
    with pytest.warns(MiscompilationWarning):
        y = ft.jit(f)(x)
    with ft.config(jit=False):
        expected = ft.jit(f)(x)
    for a, b in zip(ft.tree.leaves(y), ft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_right_large_programs_are_not_accused():
    # what is repeated along the other axis, of a square
    x = ft.array(np.linspace(0.5, 2.0, 300))
    f = ft.jit(lambda x: np.reshape(np.exp(x), (300, 1)) * np.sin(x) - np.reshape(x, (1, 300)))
    np.testing.assert_allclose(f(x), np.exp(x)[:, None] * np.sin(x) - x, rtol=1e-12,
                               atol=1e-12)
    g = ft.jit(lambda x: (np.reshape(x * 2.0, (-1, 1)) + np.tanh(x), np.outer(x, x).T[0] * 3.0))
    np.testing.assert_allclose(g(x)[0], x[:, None] * 2.0 + np.tanh(x), rtol=1e-13)


@pytest.mark.parametrize("n", [3_000, 20_000])
def test_middling_programs_are_looked_at_roughly(plant, n):
    x = np.linspace(0.5, 2.0, n)
    plant("fsub", "fadd")
    with pytest.warns(MiscompilationWarning):
        ft.jit(lambda x: np.sum((x[1:] - x[:-1]) ** 2))(x)


FAULTS = {
    "a sum": ("fadd", "fsub", lambda x: x * x + x),
    "a product": ("fmul", "fadd", lambda x: x * 3.0 - x * x),
    "a comparison": ("fcmp ogt", "fcmp olt", lambda x: x > 1.0),
    "an integer": ("mul i64", "add i64", lambda x: x.astype(int) * 3),
    "a place": ("i64 %i0, 5\n", "i64 %i0, 4\n", lambda x: np.concatenate([x, x]) * 1.5),
    "a loop": ("fmul", "fadd", lambda x: ft.scan(lambda c, v: (c * v, c + v), 1.0, x)),
    "a branch": ("fmul", "fadd", lambda x: ft.cond(x[0] > 0, lambda x: x * x, lambda x: x, x)),
    "a gradient": ("fmul", "fadd", lambda x: ft.grad(lambda x: np.sum(np.sin(x) * x))(x)),
    "beside a host step": ("fmul", "fadd", lambda x: np.sort(x * x) * 3.0),
    "a complex product": ("fmul", "fadd", lambda x: (x + 1j) * (x - 2j)),
    "of float32": ("fmul", "fadd", lambda x: x.astype("f4") * np.float32(1.1)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_all_kinds_are_seen(plant, name):
    old, new, f = FAULTS[name]
    plant(old, new)
    with pytest.warns(MiscompilationWarning):
        got = ft.jit(lambda x: f(x + 0.0))(X)
    for y, e in zip(ft.tree.leaves(got), ft.tree.leaves(f(X)), strict=True):
        np.testing.assert_allclose(y, e, rtol=1e-6)


def test_a_call_that_raises_verifies_nothing_and_the_next_one_does(plant):
    plant("fmul", "fadd")
    f = ft.jit(lambda a, b: np.linalg.solve(a, b) * 3.0)
    with pytest.raises(np.linalg.LinAlgError):
        f(np.zeros((2, 2)), np.ones(2))
    with pytest.warns(MiscompilationWarning):
        y = f(np.eye(2), np.ones(2))
    np.testing.assert_allclose(y, [3.0, 3.0])


def test_threads_that_call_at_first_all_get_right_values(plant):
    plant("fsub", "fadd")
    with pytest.warns(MiscompilationWarning):
        results = at_once(ft.jit(compute), [X] * 4)
    for y in results:
        np.testing.assert_allclose(y, compute(X), rtol=1e-15)


def test_the_filters_of_warnings_are_left_alone(monkeypatch):
    """They are the process's: threads that change and restore them in turns lose warnings."""
    touched = []
    with monkeypatch.context() as m:
        m.setattr(warnings.catch_warnings, "__enter__", lambda self: touched.append(self))
        m.setattr(warnings.catch_warnings, "__exit__", lambda *exc: None)
        for f in (compute, lambda x: np.log(x - 1.0), lambda x: np.exp(1000.0 * x)):
            ft.jit(lambda x, f=f: f(x) * 1.5)(X)
    assert not touched


def test_config_switches_it_off(plant):
    plant("fsub", "fadd")
    with ft.config(verify=False):
        assert not ft.config.verify
        y = ft.jit(compute)(X)
    np.testing.assert_allclose(y, np.exp(X) * X + 1.0, rtol=1e-15)
    assert ft.config.verify
    what = "verify must be True or False, but is 'no'"
    with pytest.raises(ArgumentError, match=what), ft.config(verify="no"):  # type: ignore[arg-type]
        pass


# ---- where nothing may be said


def chaotic(x):
    return ft.scan(lambda x, _: (3.999 * x * (1.0 - x), None), x, None, length=90)[0]


def torn(x):
    y = x * (1.0 / x)
    return np.floor(y), y == 1.0, np.where(y < 1.0, -1.0, 1.0), np.sign(y - 1.0)


HARMLESS = {
    "chaos": (chaotic, X / 3),
    "steps at rounding errors": (torn, np.linspace(1.0, 60.0, 60)),
    "a difference of squares": (lambda x: x * x - (x + 1e-9) * (x - 1e-9), 1e6 * X),
    "sums that cancel": (lambda x: np.sum(np.concatenate([x, -x[::-1]])), np.exp(30 * X)),
    "an entry of a sum that is 0": (lambda x: np.sin(x) ** 2 + np.cos(x) ** 2 - 1.0, X),
    "what is not finite": (lambda x: (np.log(x), 1 / x, x * np.inf, x - x), X - X[2]),
    "an overflow by way of the order": (lambda x: np.sum(x) / np.sum(np.abs(x)),
                                        np.array([1e308, -1e308] * 20 + [1e308, 1e308])),
    "integers that floats are not": (lambda x: (1e30 * x).astype(np.int64), X),
    "vectors of either sign": (lambda x: np.linalg.eigh(np.outer(x, x) + np.diag(x)), X),
    "a singular system": (lambda x: np.linalg.solve(np.outer(x, x) + 1e-15 * np.eye(5), x), X),
    "a mean far from 0": (lambda x: np.var(x + 1e9), X),
    "entries of very different sizes": (lambda x: x @ x.T, np.exp(np.arange(40.0).reshape(5, 8))),
    "a power": (lambda x: (x**3 - x * x * x, x**0.5, x**-1), np.linspace(0.1, 9, 100)),
    "a search that ends by rounding": (
        lambda x: ft.while_loop(
            lambda s: (abs(s[0] * s[0] - 2.0) > 4e-16) & (s[1] < 40),
            lambda s: (0.5 * (s[0] + 2.0 / s[0]), s[1] + 1), (x[0], 0)), X),
}


@pytest.mark.parametrize("contract", [False, True])
@pytest.mark.parametrize("name", HARMLESS)
def test_right_code_is_not_accused(name, contract):
    f, x = HARMLESS[name]
    with np.errstate(all="ignore"), ft.cache.off():
        ft.jit(f, contract=contract)(x)
        ft.jit(f, contract=contract)(np.float32(x))


def count_runs(monkeypatch):
    runs = []
    call = verify._Run.__call__
    monkeypatch.setattr(verify._Run, "__call__", lambda self, *args: runs.append(1) or
                        call(self, *args))
    return runs


def test_code_is_run_twice_once_and_what_is_on_disk_is_not(monkeypatch, tmp_path):
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path))
    runs = count_runs(monkeypatch)
    f = ft.jit(compute)
    for _ in range(3):
        f(X)
    assert len(runs) == 1
    ft.jit(compute)(X)
    assert len(runs) == 1


@pytest.mark.parametrize("f, x", [
    (lambda x: np.exp(x) * 2.0, np.ones(verify.MOST_ENTRIES)),
    (lambda x: ft.fori_loop(0, 10_000, lambda i, x: np.sin(x), x), X),
], ids=["large", "long"])
def test_what_takes_long_is_not_interpreted_to_the_end(f, x, monkeypatch):
    disturbed = []
    monkeypatch.setattr(verify._Run, "disturbed", lambda self, x: disturbed.append(x) or x)
    runs = count_runs(monkeypatch)
    with ft.cache.off():
        ft.jit(f)(x)
    assert not disturbed
    assert len(runs) <= 1 + verify.MOST_STEPS


def test_functions_from_outside_are_called_once():
    calls = []

    def outside(x):
        calls.append(1)
        return np.sin(x)

    g = ft.external(outside, jvp=lambda x, t: np.cos(x) * t)
    f = ft.jit(lambda x: g(x) * 2.0)
    f(X)
    before = len(calls)
    f(X)
    first, second = before, len(calls) - before
    assert second == 1
    g = ft.external(outside, jvp=lambda x, t: np.cos(x) * t)  # whose types are not known yet
    f2 = ft.jit(lambda x: g(x) * 3.0)
    with ft.config(verify=False):
        calls.clear()
        f2(X)
    assert len(calls) == first


# ---- memory


def test_compiling_gives_its_memory_back():
    # llvmlite's pass managers kept 73 kB each
    code = """
import sys
from functrans._compile.run.machine import Machine
machine, text = Machine(), "define i32 @run0(ptr %p) {\\n  ret i32 0\\n}\\n"
def compiled(n):
    for _ in range(n):
        machine.load(machine.translate(text), ["run0"])
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4
first = compiled(50)
print(compiled(300) - first)
"""
    if not Path("/proc/self/statm").exists():
        return
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(out.stdout) < 300 * 20  # kB: they were 300 * 73, and are less than 300 * 2


# ---- memory that is used again, at any size


def set_and_read(x, i):
    y = np.sin(x)
    return y.at[i].set(2.0) * 3.0 + y


def set_and_return(x, i):
    y = np.sin(x)
    return y.at[i].add(1.0), y


def set_twice(x, i):
    y = np.sin(x)
    z = y.at[i].set(x[i + 1])
    return z.at[i + 1].set(y[i])


def both_need_the_other(x, i):
    def step(k, y):
        a = y.at[k].set(1.5)
        return a + y.at[k + 1].set(2.5)

    return ft.fori_loop(0, 3, step, x)


def kept_as_well(x, i):
    return ft.scan(lambda y, k: (y.at[k].set(0.5), y[:4]), x, i)[1]


def returned_before(x, i):
    return ft.scan(lambda s, k: ((s[0].at[k].set(0.5), s[0]), None), (x, x), i)[0]


def compared_with_the_state_before(x, i):
    def step(k, y):
        a = y.at[k].set(1.5)
        return a.at[k + 1].add(np.sum(a * y))

    return ft.fori_loop(0, 3, step, x / 20)


def reversed_into(x, i):
    return ft.fori_loop(0, 2, lambda k, y: y.at[np.arange(5) + 0 * k].set(y[4::-1]), x)


# Conditions of the passes that are dropped, by the programs that then overwrite what they read.
DROPPED = {
    "what is read later": ("b in filled and last[b] == i and", "b in filled and", set_and_read),
    "what is returned": ("and b not in kept and made", "and made", set_and_return),
    "a state that is returned": ("b in self.outputs or b in self.over", "b in self.over",
                                 returned_before),
    "what the update reads itself": (
        "or b in self.over or b in step.reads[1:]", "or b in self.over", reversed_into),
    "a state that is read later": (
        "if not all(_last_reader(order, v, s) for v, s in over.items()):", "if False:",
        compared_with_the_state_before),
}


@pytest.fixture
def careless(monkeypatch, tmp_path):
    """A pass without one of its conditions."""
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path))

    def drop(text, new, module=memory, users=(frame, control)):
        source = inspect.getsource(module)
        assert source.count(text) == 1
        made = types.ModuleType(module.__name__)
        exec(compile(source.replace(text, new), module.__file__, "exec"), vars(made))
        for user in users:
            for name in ("overwrite", "placed", "allocate"):
                if hasattr(user, name) and hasattr(made, name):
                    monkeypatch.setattr(user, name, getattr(made, name))

    return drop


@pytest.mark.parametrize("n", [10, 10_000, 1_000_000])
@pytest.mark.parametrize("what", list(DROPPED))
def test_memory_that_is_overwritten_too_early_is_seen_at_any_size(careless, what, n):
    text, new, f = DROPPED[what]
    x, i = ft.array(np.linspace(0.0, 1.0, n)), np.array([1, 3, 5])
    careless(text, new)
    with pytest.warns(MiscompilationWarning, match=r"something else is written there"):
        y = ft.jit(f)(x, i)
    with ft.config(jit=False):
        expected = ft.jit(f)(x, i)
    for a, b in zip(ft.tree.leaves(y), ft.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("n", [10, 10_000, 1_000_000])
def test_scratch_that_is_used_again_too_early_is_seen_at_any_size(careless, n):
    careless("and taken[0][0] < first[v]:", "and taken[0][0] < first[v] + 9:", memory)
    x, i = ft.array(np.linspace(0.0, 1.0, n)), np.array([1, 3, 5])

    def f(x, i):
        y = np.cumsum(x)
        z = np.cumsum(y[::-1])
        return np.cumsum(z * y)[i], y[i]

    with pytest.warns(MiscompilationWarning, match=r"something else is written there"):
        y = ft.jit(f)(x, i)
    np.testing.assert_allclose(y[0], f(x, i)[0], rtol=1e-13)


def test_what_is_right_is_not_accused_of_overwriting():
    x, i = ft.array(np.linspace(0.0, 1.0, 50)), np.array([1, 3, 5])
    for f in (set_and_read, set_and_return, set_twice, kept_as_well, both_need_the_other,
              *[f for _, _, f in DROPPED.values()]):
        ft.jit(f)(x, i)
        ft.jit(ft.grad(lambda x, f=f: sum(np.sum(y) for y in ft.tree.leaves(f(x, i)))))(x)


def test_memory_that_many_paths_lead_to_is_looked_at_once():
    # two paths from each step to the one before: 2**200 of them to the input
    made = [Var(Aval((3,), np.dtype(float))) for _ in range(201)]
    steps = [types.SimpleNamespace(makes=(b,), reads=(a, made[max(i - 1, 0)]), copies=False)
             for i, (a, b) in enumerate(itertools.pairwise(made))]
    follow = memory.Audit(steps, made[:1], {made[0]: ("input", 0, 8)}.get, made[1:])
    assert follow.fault(steps, made[-1:], {}) is None
    follow.memory.fill(("input", 0, 8), None)
    assert follow.lost(made[-1])


def test_memory_that_overlaps_holds_what_was_written_last():
    a, b, c, d = (Var(Aval((n,), np.dtype(float))) for n in (2, 4, 1, 2))
    places = {a: (0, 16), b: (16, 48), c: (8, 16), d: (40, 56)}
    follow = memory.Audit([], [a, b], lambda v: ("scratch", *places[v]), ())
    assert not follow.lost(a) and not follow.lost(b)
    follow.fill(c)  # the end of a
    assert follow.lost(a) and not follow.lost(b)
    follow.fill(d)  # the end of b
    assert follow.lost(b) and not follow.lost(c) and not follow.lost(d)
    follow.fill(b)
    assert follow.lost(d) and not follow.lost(b) and not follow.lost(c)
