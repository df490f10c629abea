"""config(...) sets for a context, config.set(...) for the process; nothing is set by mistake."""

import asyncio
import gc
import sys
import threading
import traceback
import warnings

import numpy as np
import pytest

import functrans as ft
from functrans.config import Named, _process
from functrans.errors import ArgumentError, KinkWarning
from tests.threads import elsewhere

DEFAULTS = {
    "jit": True, "keep_memory": True, "threads": None, "kinks": "subgradient", "log": None,
    "loops": True, "tracebacks": "short", "values": "native", "verify": True, "warnings": False,
}
# whether a thread starts with the settings of the one that starts it
INHERITED = bool(getattr(sys.flags, "thread_inherit_context", False))
OTHERS = {
    "jit": False, "keep_memory": False, "threads": 3, "kinks": "warn", "log": "compile",
    "loops": False, "tracebacks": "full", "values": "numpy", "verify": False, "warnings": True,
}


@pytest.fixture(autouse=True)
def _restored():
    before = now()
    ft.config.set(**DEFAULTS)
    yield
    ft.config.set(**before)


def now():
    return {name: getattr(ft.config, name) for name in DEFAULTS}


def test_every_setting_is_a_row_with_a_type():
    assert [*DEFAULTS] == [*Named.__annotations__] == [*_process]


# ---- for a context


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_block_sets_for_its_time_and_its_thread(name):
    with ft.config(**{name: OTHERS[name]}):
        assert getattr(ft.config, name) == OTHERS[name]
        assert elsewhere(now) == (now() if INHERITED else DEFAULTS)
    assert now() == DEFAULTS
    assert elsewhere(now) == DEFAULTS


def test_the_inner_block_goes_first_and_leaves_the_rest():
    with ft.config(threads=3, verify=False):
        with ft.config(threads=None):
            assert now() == {**DEFAULTS, "verify": False}
        assert ft.config.threads == 3


def test_a_block_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), ft.config(jit=False):
        raise ZeroDivisionError
    assert ft.config.jit


def test_a_block_may_be_kept_entered_again_and_inside_itself():
    block = ft.config(threads=2)
    for _ in range(2):
        with block:
            with block, ft.config(threads=3):
                assert ft.config.threads == 3
            assert ft.config.threads == 2
        assert ft.config.threads is None


def test_a_block_decorates_a_function():
    @ft.config(threads=2)
    def threads(depth):
        return (ft.config.threads, *threads(depth - 1)) if depth else ()

    assert threads(2) == (2, 2)
    assert ft.config.threads is None


def test_a_task_has_settings_of_its_own():
    async def main():
        entered, asked = asyncio.Event(), asyncio.Event()

        async def other():
            with ft.config(threads=2):
                entered.set()
                await asked.wait()

        task = asyncio.create_task(other())
        await entered.wait()
        before = ft.config.threads
        asked.set()
        await task
        return before

    assert asyncio.run(main()) is None


def test_a_generator_that_ends_early_takes_only_its_own_block_with_it():
    def steps():
        with ft.config(threads=2):
            yield

    steps = steps()
    next(steps)
    with ft.config(verify=False):
        steps.close()
        assert (ft.config.threads, ft.config.verify) == (None, False)
    assert now() == DEFAULTS


def test_a_block_is_left_where_it_was_entered():
    block = ft.config(threads=2)
    elsewhere(block.__enter__)
    with pytest.raises(ArgumentError, match=r"config\(threads=2\): .* the thread .* entered it"):
        block.__exit__(None, None, None)


# ---- for the process


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_process_setting_is_read_here_and_in_new_threads(name):
    ft.config.set(**{name: OTHERS[name]})
    assert getattr(ft.config, name) == OTHERS[name]
    assert elsewhere(now) == now()


def test_running_threads_see_it_unless_they_have_set_their_own():
    steps = [threading.Event() for _ in range(2)]
    seen = {}

    def run(block):
        with block:
            steps[0].wait(60)
            seen[threading.current_thread().name] = ft.config.threads, ft.config.verify

    blocks = {"own": ft.config(threads=2), "none": ft.config()}
    threads = [threading.Thread(target=run, args=(b,), name=n) for n, b in blocks.items()]
    for t in threads:
        t.start()
    ft.config.set(threads=5, verify=False)
    steps[0].set()
    for t in threads:
        t.join()
    assert seen == {"own": (2, False), "none": (5, False)}


def test_jit_and_kinks_may_come_from_a_block_and_from_the_process():
    with ft.config(jit=True):
        ft.config.set(kinks="raise")
        assert not ft.config.jit
        with ft.config(kinks="subgradient"):
            assert ft.config.jit
    ft.config.set(kinks="subgradient", jit=False)
    with ft.config(kinks="subgradient"):
        assert not ft.config.jit
        ft.config.set(jit=True)
        assert ft.config.jit


def test_functions_follow_the_process():
    calls = []
    f = ft.jit(lambda x: calls.append(0) or x + x)
    ft.config.set(jit=False)
    assert [f(1.0), f(1.0), len(calls)] == [2.0, 2.0, 2]
    ft.config.set(jit=True)
    assert [f(1.0), f(1.0), len(calls)] == [2.0, 2.0, 3]
    ft.config.set(kinks="warn")
    with pytest.warns(KinkWarning):
        ft.grad(np.abs)(0.0)


# ---- what cannot be set


@pytest.mark.parametrize("setter", [ft.config, ft.config.set])
@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"jti": False}, "no setting `jti`; there are `jit`, "
         "`keep_memory`, `threads`, `kinks`, `log`, `loops`, `tracebacks`, `values`, `verify`"),
        ({"tracebacks": "long"}, "tracebacks must be .short. or .full., but is .long."),
        ({"jit": None}, "jit must be True or False, but is None"),
        ({"jit": np.zeros(2)}, "jit must be True or False"),
        ({"verify": 1}, "verify must be True or False, but is 1"),
        ({"threads": True}, "threads must be None or at least 1, but is True"),
        ({"threads": 2.0}, r"threads must be None or at least 1, but is 2\.0"),
        ({"kinks": "error"}, "kinks must be 'subgradient', 'warn' or 'raise', but is 'error'"),
        ({"log": "all"}, "log must be None or 'compile', but is 'all'"),
        ({"kinks": []}, r"kinks must be .* but is \[\]"),
        ({"threads": 4, "jit": 0}, "jit must be True or False, but is 0"),
    ],
)
def test_an_unknown_name_or_value_is_refused_at_once_and_nothing_is_set(setter, named, text):
    with pytest.raises(ArgumentError, match=text):
        setter(**named)
    assert now() == DEFAULTS


def test_assignment_is_refused():
    with pytest.raises(ArgumentError, match=r"config\.set\(jit=False\).*with config\(jit=False\)"):
        ft.config.jit = False


def test_threads_may_be_any_integer():
    with ft.config(threads=np.int64(3)):
        assert type(ft.config.threads) is int


# ---- what does nothing


def test_a_block_that_is_dropped_at_once_warns_at_its_line():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ft.config(jit=False)
        line = sys._getframe().f_lineno - 1
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert str(warning.message) == (
        f"{__file__}:{line}: config(jit=False) on its own sets nothing. Write "
        "`with config(jit=False):` for a block, or config.set(jit=False) for the process."
    )


def test_as_an_error_the_warning_is_reported_with_its_line(monkeypatch):
    """Like that of a coroutine which was never awaited: a finalizer cannot raise."""
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", lambda report: reports.append(report.exc_value))
    ft.config(jit=False)
    (error,) = reports
    assert isinstance(error, RuntimeWarning)
    assert f"{__file__}:" in str(error)


def test_a_block_that_is_kept_entered_or_refused_does_not_warn(monkeypatch):
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", reports.append)
    kept = ft.config(jit=False)
    del kept
    with ft.config(jit=False):
        pass
    with pytest.raises(ArgumentError):
        ft.config(jit=None)
    gc.collect()
    assert reports == []


# ---- tracebacks


def lines_of(error):
    """The functions of a traceback below the test's own."""
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)][1:]


def misspelt(x):
    return np.sum(x).frob


def mismatched(x):
    return helper(x)


def helper(x):
    return np.sum(x @ np.ones((5, 5)))


def of_numpys_own(x):
    return x * np.linalg.solve(np.ones((2, 3)), np.ones(2))


X = np.ones(3)
CALLS = {
    "grad": lambda f: ft.grad(f)(X),
    "jit": lambda f: ft.jit(f)(X),
    "jit of grad": lambda f: ft.jit(ft.grad(f))(X),
    "vmap of jit": lambda f: ft.vmap(ft.jit(f))(X[None]),
    "uncompiled": lambda f: ft.config(jit=False)(ft.jit(f))(X),
    "jvp": lambda f: ft.jvp(f, (X,), (X,)),
    "vjp": lambda f: ft.vjp(f, X),
    "scan": lambda f: ft.scan(lambda c, _: (f(c), None), X, None, length=2),
    "hessian": lambda f: ft.hessian(f)(X),
}


@pytest.mark.parametrize(("f", "frames"), [
    (misspelt, ["misspelt"]), (mismatched, ["mismatched", "helper"]),
    (of_numpys_own, ["of_numpys_own", "solve", "_assert_stacked_square"]),
])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_tracebacks_have_the_users_lines_alone(call, f, frames):
    with pytest.raises((AttributeError, ValueError)) as short, ft.config(tracebacks="short"):
        call(f)
    assert [n for n in lines_of(short.value) if n not in ("<lambda>", "inner")] == frames
    with pytest.raises((AttributeError, ValueError)) as full, ft.config(tracebacks="full"):
        call(f)
    assert len(lines_of(full.value)) > len(frames) + 2


def test_an_error_of_the_transform_itself_ends_where_it_was_called():
    with pytest.raises(ft.errors.NotDifferentiable) as error, ft.config(tracebacks="short"):
        ft.grad(lambda x: x)(X)
    assert lines_of(error.value) == []


@pytest.mark.parametrize("call", [
    lambda: ft.grad(3), lambda: ft.grad(misspelt, argnums=1.0), lambda: ft.jit(3),
    lambda: ft.jit(misspelt, static_argnames="z"), lambda: ft.checkpoint(None),
    lambda: ft.vjp(np.sin, X)[1](np.ones(4)), lambda: ft.linearize(np.sin, X)[1](np.ones(4)),
    lambda: ft.export(np.sort, X), lambda: ft.vmap(3),
])
def test_an_error_of_what_a_transform_is_given_ends_where_that_is(call):
    with pytest.raises(ft.errors.FunctransError) as error, ft.config(tracebacks="short"):
        call()
    assert lines_of(error.value) == ["<lambda>"]


def test_the_errors_behind_an_error_are_shortened_too():
    def f(x):
        try:
            return misspelt(x)
        except AttributeError as e:
            raise KeyError from e

    with pytest.raises(KeyError) as error, ft.config(tracebacks="short"):
        ft.grad(f)(X)
    cause = traceback.extract_tb(error.value.__cause__.__traceback__)
    assert [frame.name for frame in cause] == ["f", "misspelt"]


def test_a_mistake_of_functrans_itself_keeps_its_frames():
    scope = {}
    exec(compile("def mistaken(x):\n    raise AssertionError", ft.__file__, "exec"), scope)
    with pytest.raises(AssertionError) as error, ft.config(tracebacks="short"):
        ft.grad(lambda x: scope["mistaken"](x))(X)
    assert lines_of(error.value)[-1] == "mistaken"
    assert len(lines_of(error.value)) > 3
