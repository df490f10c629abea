"""Forks, threads and signal handlers: compiled functions work in all of them, at any moment.

Each script runs in a process of its own, which is killed if it hangs.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PATIENCE = 120

SETUP = """
import os, signal, sys, threading, warnings
import numpy as np
import functrans as ft

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
X = np.array([1.0, 2.0])

def square():
    return ft.jit(lambda x: x * x)

def child(work):
    'The exit code of a forked child that does this work.'
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            work()
            os._exit(0)
        except BaseException as e:
            print(repr(e), file=sys.stderr)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def compiles():
    'A function that no one has called before runs natively.'
    from functrans._compile.run.machine import Machine
    translated = []
    translate = Machine.translate
    Machine.translate = lambda self, *args: translated.append(args) or translate(self, *args)
    f = ft.jit(lambda x: x * 3 + len(translated) + os.getpid())
    assert f(X).tolist() == (X * 3 + os.getpid()).tolist()
    assert translated
"""


def run(script, tmp_path, *options):
    env = {**os.environ, "FUNCTRANS_CACHE_DIR": str(tmp_path)}
    env.pop("OPENBLAS_NUM_THREADS", None)  # a fork is to meet BLAS's threads too
    command = [sys.executable, "-W", "error", *options, "-c", SETUP + textwrap.dedent(script)]
    done = subprocess.run(command, env=env, timeout=PATIENCE, capture_output=True, text=True,
                          cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return done


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


# ---- forks


@needs_fork
@pytest.mark.parametrize("where", [
    "functrans._compile.run.machine.Machine.translate",
    "functrans._compile.run.machine.Machine.load",
    "functrans._compile.run.native.optimise",
    "functrans._compile.run.store.put",
])
def test_a_child_forked_while_a_thread_compiles_compiles_itself(where, tmp_path):
    run(f"""
        import pkgutil
        import functrans._compile.run.native
        inside, go = threading.Event(), threading.Event()
        *owner, name = {where!r}.split(".")
        owner = pkgutil.resolve_name(".".join(owner))
        original = getattr(owner, name)
        def slow(*args):
            inside.set()
            go.wait()
            return original(*args)
        setattr(owner, name, slow)
        thread = threading.Thread(target=lambda: square()(X), daemon=True)
        thread.start()
        inside.wait()
        setattr(owner, name, original)
        os.register_at_fork(before=go.set)
        assert child(compiles) == 0
        thread.join()
        compiles()
    """, tmp_path)


@needs_fork
def test_a_child_forked_while_a_thread_imports_the_compiler_compiles_itself(tmp_path):
    run("""
        inside, go = threading.Event(), threading.Event()
        def importing(event, args):
            if event == "import" and args[0] == "functrans._compile.run.native" and not go.is_set():
                inside.set()
                go.wait()
        sys.addaudithook(importing)
        thread = threading.Thread(target=lambda: square()(X), daemon=True)
        thread.start()
        inside.wait()
        os.register_at_fork(before=go.set)
        assert child(compiles) == 0
        thread.join()
    """, tmp_path)


@needs_fork
def test_a_child_may_be_forked_by_the_thread_that_compiles(tmp_path):
    run("""
        from functrans._compile.run.machine import Machine
        translate = Machine.translate
        codes = []
        def forking(self, *args):
            if not codes:
                codes.append(None)
                codes.append(child(lambda: square()(X)))
            return translate(self, *args)
        Machine.translate = forking
        assert square()(X).tolist() == [1, 4]
        assert codes[1] == 0
    """, tmp_path)


@needs_fork
def test_a_fork_that_has_waited_long_has_a_child_that_interprets(tmp_path):
    run("""
        from functrans._compile.run.machine import Machine
        from functrans._core import locks
        locks.PATIENCE = 0
        inside, go = threading.Event(), threading.Event()
        translate = Machine.translate
        def slow(self, *args):
            inside.set()
            go.wait()
            return translate(self, *args)
        Machine.translate = slow
        thread = threading.Thread(target=lambda: square()(X), daemon=True)
        thread.start()
        inside.wait()
        def interprets():
            f = square()
            assert [f(X).tolist(), f(X).tolist()] == [[1, 4]] * 2
        assert child(interprets) == 0
        go.set()
        thread.join()
        compiles()
    """, tmp_path)


@needs_fork
def test_a_child_has_the_locks_of_its_own_thread_and_no_others(tmp_path):
    run("""
        from functrans._core.locks import Lock
        mine, another = Lock(), Lock()
        inside, go = threading.Event(), threading.Event()
        def hold():
            with another:
                inside.set()
                go.wait()
        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        inside.wait()
        def ask():
            assert another.acquire(timeout=0)
            refused = []
            asks = threading.Thread(target=lambda: refused.append(mine.acquire(timeout=0)))
            asks.start()
            asks.join()
            assert refused == [False]
            mine.release()
        mine.acquire()
        assert child(ask) == 0
        go.set()
        thread.join()
        mine.release()
    """, tmp_path)


@needs_fork
def test_threads_of_native_code_start_in_a_child_too(tmp_path):
    run("""
        x = np.linspace(0.0, 1.0, 400_000)
        f = ft.jit(lambda x: np.sum(np.exp(x) * np.sin(x)))
        with ft.config(threads=2):
            y = f(x)
            def again():
                assert f(x) == y
            assert child(again) == 0
    """, tmp_path)


@needs_fork
def test_a_checkpoint_walks_back_in_a_child_forked_while_a_thread_walks(tmp_path):
    run("""
        inside, go = threading.Event(), threading.Event()
        def f(x):
            if threading.current_thread() is not threading.main_thread():
                inside.set()
                go.wait()
            return np.sum(x * x)
        y, pullback = ft.vjp(ft.checkpoint(f), X)
        thread = threading.Thread(target=lambda: pullback(1.0), daemon=True)
        thread.start()
        inside.wait()
        def walk():
            assert pullback(1.0)[0].tolist() == [2, 4]
        assert child(walk) == 0
        go.set()
        thread.join()
    """, tmp_path)


# ---- signal handlers


@pytest.mark.parametrize("where", ["compile", "translate", "load"])
def test_a_signal_handler_may_call_what_is_being_compiled_and_others(where, tmp_path):
    run(f"""
        from functrans._compile.run.machine import Machine
        f, others = square(), [ft.jit(lambda x, n=n: x + n) for n in range(3)]
        seen = []
        signal.signal(signal.SIGINT, lambda *_: seen.append([f(X).tolist()] + [
            other(X).tolist() for other in others
        ]))
        original = Machine.{where}
        def interrupted(self, *args):
            if len(seen) < 2:
                signal.raise_signal(signal.SIGINT)
            return original(self, *args)
        Machine.{where} = interrupted
        assert f(X).tolist() == [1, 4]
        assert seen and seen[0] == [[1, 4], [1, 2], [2, 3], [3, 4]]
        Machine.{where} = original
        for f in [f, *others]:
            assert f(X).tolist() == f(X).tolist() == f.__wrapped__(X).tolist()
            assert not isinstance(f.lower(X).entry.executable.code, Exception)
    """, tmp_path)


def test_a_signal_handler_may_compile_while_the_compiler_is_imported(tmp_path):
    run("""
        f, g = square(), ft.jit(lambda x: x + 1)
        seen, asked = [], []
        signal.signal(signal.SIGINT, lambda *_: seen.append([f(X).tolist(), g(X).tolist()]))
        def importing(event, args):
            if event == "import" and args[0].startswith(("functrans._compile.", "llvmlite")):
                asked.append(args[0])
                signal.raise_signal(signal.SIGINT)
        sys.addaudithook(importing)
        assert f(X).tolist() == [1, 4]
        assert len(asked) > 10
        assert seen == [[[1, 4], [2, 3]]] * len(asked)
        compiles()
    """, tmp_path)


# ---- threads


def test_threads_that_ask_at_once_wait_for_the_one_that_compiles(tmp_path):
    run("""
        from functrans._compile.run.machine import Machine
        titles, translate = [], Machine.translate
        Machine.translate = lambda self, *args: titles.append(args) or translate(self, *args)
        f, start, ys = square(), threading.Barrier(4), []
        f.lower(X)
        def ask():
            start.wait()
            ys.append(f(X).tolist())
        threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert ys == [[1, 4]] * 4
        assert len([args for args in titles if "@entry" not in args[0]]) <= 1, len(titles)
    """, tmp_path)
