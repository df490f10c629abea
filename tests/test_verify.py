"""Fresh code is compared with its program: planted faults are seen, right code is not accused."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from functrans._compile.run import verify
from functrans._compile.run.machine import OPTIONS, SAFE, Machine
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
