"""NumPy's warnings in functions that are transformed or compiled."""

import contextlib
import contextvars
import io
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as plain_np
import pytest

import functrans as ft
import functrans.numpy as np
from functrans._core import warned as logged
from functrans._transforms.reverse import vjp
from functrans._transforms.staging import compiled as warned
from tests.threads import at_once

HERE = __file__
ZERO = plain_np.array([0.0, 1.0])


def entropy(x):
    logs = np.log(x)  # the line that is to blame
    return -np.sum(x * logs)


LINE = entropy.__code__.co_firstlineno + 1


def written(x):
    y = np.zeros(2)
    y[:] = np.log(x)
    return np.sum(y)


def given(f, *args):
    """What a call warns of: lines, files and texts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        f(*args)
    return [(w.lineno, w.filename, str(w.message)) for w in found]


OF_LOG = "divide by zero encountered in log"
OF_MULTIPLY = "invalid value encountered in multiply"


@pytest.mark.parametrize("transformed", [
    ft.grad, ft.hessian, ft.jacfwd, lambda f: lambda x: ft.jvp(f, (x,), (x,)),
    lambda f: lambda x: ft.vmap(f)(x[None]), lambda f: lambda x: ft.vjp(f, x),
])
def test_warnings_point_to_the_users_line(transformed):
    found = given(transformed(entropy), ZERO)  # jvp may warn of a tangent, too
    assert list(dict.fromkeys(found)) == [(LINE, HERE, OF_LOG), (LINE + 1, HERE, OF_MULTIPLY)]


def test_warnings_of_what_is_written_point_to_the_users_line():
    line = written.__code__.co_firstlineno + 2
    assert given(ft.grad(written), ZERO) == [(line, HERE, OF_LOG)]


def test_a_warning_is_of_the_users_module():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", module=__name__)
        assert ft.grad(entropy)(ZERO)[1] == -1.0
        warnings.filterwarnings("error", category=RuntimeWarning, module=__name__)
        with pytest.raises(RuntimeWarning, match=OF_LOG):
            ft.grad(entropy)(ZERO)


def test_errors_are_dealt_with_as_numpys_state_says(capsys):
    grad, calls = ft.grad(entropy), []
    with plain_np.errstate(all="ignore"):
        assert given(grad, ZERO) == []
    with plain_np.errstate(all="raise"), pytest.raises(FloatingPointError, match=OF_LOG):
        grad(ZERO)
    with plain_np.errstate(all="call", call=lambda *error: calls.append(error)):
        grad(ZERO)
    assert calls == [("divide by zero", 1), ("invalid value", 8)]
    with plain_np.errstate(all="print"):
        grad(ZERO)
    assert capsys.readouterr().out.splitlines() == [f"Warning: {OF_LOG}", f"Warning: {OF_MULTIPLY}"]

    log = io.StringIO()
    with plain_np.errstate(all="log", call=log):
        grad(ZERO)
    assert log.getvalue() == f"Warning: {OF_LOG}\nWarning: {OF_MULTIPLY}\n"
    before = plain_np.geterr()
    given(grad, ZERO)
    assert plain_np.geterr() == before


def test_the_function_may_set_numpys_state():
    def f(x):
        with plain_np.errstate(divide="ignore"):
            y = np.log(x)
        with plain_np.errstate(all="raise"), pytest.raises(FloatingPointError):
            np.log(x)
        return np.sum(y)

    assert given(ft.grad(f), ZERO) == []


def test_underflow_and_calls_of_the_function_itself_reach_the_callers_object():
    def f(x):
        with plain_np.errstate(divide="call"):
            return np.sum(np.exp(x - 740) + np.log(x))

    calls, log = [], io.StringIO()
    with plain_np.errstate(all="ignore", under="call", call=lambda *error: calls.append(error)):
        ft.grad(f)(ZERO)
    assert ("underflow", 4) in calls and ("divide by zero", 1) in calls
    with plain_np.errstate(under="log", call=log):
        ft.grad(lambda x: np.sum(np.exp(x - 740)))(ZERO)
    assert set(log.getvalue().splitlines()) == {"Warning: underflow encountered in exp"}


def test_threads_that_share_a_context_may_warn_at_once(monkeypatch):
    both, state = threading.Barrier(2), plain_np.geterr

    def asked():
        both.wait(10)
        return state()

    def f(x):
        contexts = [contextvars.copy_context() for _ in range(2)]
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda c: c.run(plain_np.log, plain_np.zeros(2)), contexts))
        return np.sum(x) + len(found)

    monkeypatch.setattr(plain_np, "geterr", asked)
    assert len(given(ft.grad(f), ZERO)) == 2


def test_threads_warn_by_their_own_state():
    found = {}

    def run(how):
        with plain_np.errstate(all=how):
            try:
                found[how] = float(ft.value_and_grad(written)(ZERO)[0])
            except FloatingPointError as e:
                found[how] = str(e)

    at_once(run, ["ignore", "raise"])
    assert found == {"ignore": -plain_np.inf, "raise": OF_LOG}


# ---- compiled


def masked(x):
    return np.sum(np.where(x > 0, 1 / (1 + 1 / x), 0.0))  # what is infinite does not show


COMPILED = {
    "value": lambda f: ft.jit(f), "gradient": lambda f: ft.jit(ft.grad(f)),
    "gradient of compiled": lambda f: ft.grad(ft.jit(f)),
    "within": lambda f: ft.jit(lambda x: ft.jit(f)(x) + 1),
}


@pytest.mark.parametrize("compiled", COMPILED.values(), ids=COMPILED)
def test_compiled_functions_warn_where_asked_to(compiled):
    line = masked.__code__.co_firstlineno + 1
    f = compiled(masked)
    f(ZERO + 1)
    assert given(f, ZERO) == []
    with ft.config(warnings=True):
        assert given(f, ZERO + 1) == []
        assert given(f, ZERO) == [(line, HERE, "divide by zero encountered in divide")]
        assert given(f, ZERO) == [(line, HERE, "divide by zero encountered in divide")]
    assert given(f, ZERO) == []


def test_without_flags_results_tell(monkeypatch):
    monkeypatch.setattr(warned, "_flags", 0)
    f = ft.jit(entropy)
    f(ZERO + 1)
    with ft.config(warnings=True):
        assert given(f, ZERO) == [(LINE, HERE, OF_LOG), (LINE + 1, HERE, OF_MULTIPLY)]
        assert given(ft.jit(masked), ZERO) == []


def test_a_function_is_run_again_only_where_something_was_odd():
    calls = []

    def f(x):
        calls.append(x)
        return np.sum(1 / x)

    g = ft.jit(f)
    g(ZERO + 1)
    with ft.config(warnings=True), plain_np.errstate(all="ignore"):
        g(ZERO + 1)
        assert len(calls) == 1
        g(ZERO)
        assert len(calls) == 2
        ft.vmap(g)(ZERO[None])  # which sees no numbers


def raises_from_now_on(x):
    plain_np.seterr(over="raise", under="ignore")
    return x


def fails(x):
    plain_np.seterr(over="raise", under="ignore")
    raise KeyError(x)


def calls_from_now_on(x):
    plain_np.seterrcall(print)
    plain_np.seterr(over="call", under="ignore")
    return x


def restores(x):
    before = plain_np.seterr(all="ignore")
    np.log(0.0 * x)
    plain_np.seterr(**before)
    return x


@pytest.mark.parametrize("f, over, call", [
    (raises_from_now_on, "raise", None), (fails, "raise", None),
    (calls_from_now_on, "call", print), (restores, "print", None),
])
@pytest.mark.parametrize("transform", [
    ft.grad, ft.jit, lambda f: ft.grad(ft.grad(f)), lambda f: lambda x: ft.vmap(f)(np.full(2, x)),
], ids=["grad", "jit", "twice", "vmap"])
def test_seterr_holds_after_the_transform_as_after_the_function(transform, f, over, call):
    with plain_np.errstate(divide="log", over="print", under="ignore", invalid="warn", call=None):
        before = plain_np.geterr()
        with contextlib.suppress(KeyError):
            transform(f)(1.0)
        assert plain_np.geterr() == {**before, "over": over}
        assert plain_np.geterrcall() is call


def test_numpys_state_may_be_set_by_its_public_functions(monkeypatch):
    for module in (logged, vjp):
        monkeypatch.setattr(module, "STATE", logged._State())

    def run():
        before = plain_np.geterr(), plain_np.geterrcall()
        found = given(ft.grad(entropy), ZERO)
        assert list(dict.fromkeys(found)) == [(LINE, HERE, OF_LOG), (LINE + 1, HERE, OF_MULTIPLY)]
        assert (plain_np.geterr(), plain_np.geterrcall()) == before
        ft.grad(calls_from_now_on)(1.0)
        assert (plain_np.geterr()["over"], plain_np.geterrcall()) == ("call", print)

    contextvars.copy_context().run(run)


def to_real(x):
    y = np.zeros(2, complex)
    y[:] = x
    return y.astype(float).sum()


WARNING = {
    "complex to real": lambda x: (x * (1 + 0j)).astype(float).sum(),
    "complex to real, in place": to_real,
    "np.array": lambda x: np.array(x * (1 + 0j), dtype=float).sum(),
    "polyfit": lambda x: np.polyfit(plain_np.zeros(2) + 1e-9, x, 1).sum(),
    "mean": lambda x: np.mean(x[:0]), "var": lambda x: np.var(x[:1], ddof=1),
    "nanmean": lambda x: np.nanmean(x * plain_np.nan), "std": lambda x: np.std(x[:0]),
    "nanmax": lambda x: np.nanmax(x * plain_np.nan), "median": lambda x: np.median(x[:0]),
    "cov": lambda x: np.cov(x[:1]).sum(),
}


@pytest.mark.parametrize("f", WARNING.values(), ids=WARNING)
def test_other_warnings_are_at_the_users_line_too(f):
    found = given(ft.grad(f), ZERO)
    lines = range(f.__code__.co_firstlineno, f.__code__.co_firstlineno + 4)
    assert found
    assert all(file == HERE and line in lines for line, file, _ in found)


def several():
    np.log(ZERO)
    np.divide(1.0, ZERO)
    np.sqrt(plain_np.array(-1.0))


def test_warnings_outside_of_transforms_are_at_the_users_line():
    line = several.__code__.co_firstlineno
    assert given(several) == [
        (line + 1, HERE, OF_LOG), (line + 2, HERE, "divide by zero encountered in divide"),
        (line + 3, HERE, "invalid value encountered in sqrt"),
    ]
    with plain_np.errstate(divide="ignore", invalid="ignore"):
        assert given(several) == []
    with plain_np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        np.log(ZERO)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # the state is as it was
            with pytest.raises(RuntimeWarning):
                np.log(ZERO)
    assert plain_np.geterr()["divide"] == "warn"


@pytest.mark.parametrize("state", [{}, {"divide": "raise", "over": "log"}, {"all": "ignore"}])
def test_a_function_sees_the_state_of_its_caller(state):
    seen = []

    def f(x):
        seen.append((np.geterr(), np.geterrcall()))
        with plain_np.errstate(invalid="print"):
            seen.append((np.geterr(), np.geterrcall()))
        return x

    with plain_np.errstate(**state, call=print):
        f(1.0)
        ft.grad(f)(1.0)
    assert seen[:2] == seen[2:]
