"""``python -m functrans``."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import functrans
from functrans import __main__
from functrans.__main__ import interpreter, main, native
from functrans._compile.run import entry
from functrans.cache import directory


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "functrans"], capture_output=True, text=True,
                          check=True)
    assert done.stdout.startswith(f"functrans {functrans.__version__}, ")
    assert "\njit       on\nBLAS      of " in done.stdout
    assert "\nself-test passed\n" in done.stdout


def test_the_report_runs_its_example(capsys):
    main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(">>> ") for line in lines) == 5
    assert lines[-4] == "[0.09003057 0.24472847 0.66524096]"


def test_a_bug_report_has_settings_and_variables_and_no_example(capsys, monkeypatch):
    monkeypatch.setenv("FUNCTRANS_CACHE_SIZE", "100")
    assert main(["--bug-report"]) == 0
    text = capsys.readouterr().out
    assert "\nsettings  config(jit=True, keep_memory=True, threads=" in text
    assert "\n          FUNCTRANS_CACHE_SIZE=100\n" in text
    assert ">>>" not in text


def test_the_report_says_when_calls_take_the_long_way(monkeypatch):
    monkeypatch.setattr(entry, "is_supported", lambda: False)
    assert native().startswith("on, but calls take the long way: ")


def test_the_report_says_whether_threads_run_side_by_side(monkeypatch):
    monkeypatch.setattr(__main__, "FREE_THREADED", False)
    assert interpreter() == platform.python_version()
    monkeypatch.setattr(__main__, "FREE_THREADED", True)
    for on, word in ((True, "on"), (False, "off")):
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda on=on: on, raising=False)
        assert interpreter() == f"{platform.python_version()} free-threaded, with its lock {word}"


def test_a_failing_self_test_names_what_failed(capsys, monkeypatch):
    monkeypatch.setattr(functrans, "vmap", lambda f: np.sin)
    assert main() == 1
    assert "\nself-test FAILED: batches\n" in capsys.readouterr().out


@pytest.mark.parametrize("error", ["OSError", "ImportError", "RuntimeError"])
@pytest.mark.parametrize("module", ["__init__", "binding"])
def test_without_llvmlite_numpy_runs_the_programs_and_one_warning_says_why(tmp_path, error, module):
    (tmp_path / "llvmlite").mkdir()
    for name in ("__init__", "binding"):
        text = f"raise {error}('libLLVM.so is missing')" if name == module else ""
        (tmp_path / "llvmlite" / f"{name}.py").write_text(text)
    (tmp_path / "script.py").write_text(
        "import functrans as ft, numpy as np\n"
        "for f in np.sin, np.cos:\n"
        "    print(ft.jit(ft.grad(lambda x: np.sum(f(x))))(np.zeros(2)))\n"
        "print(ft.grad(lambda x: np.sum(np.cumsum(x)))(np.ones(1 << 20))[0])\n"
        "from functrans.__main__ import main\n"
        "main()\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(functrans.__file__).parents[1])])
    env = {**os.environ, "PYTHONPATH": path}
    script = str(tmp_path / "script.py")
    done = subprocess.run([sys.executable, "-W", "always", script], env=env, capture_output=True,
                          text=True, check=True, timeout=120)
    assert done.stdout.startswith("[1. 1.]\n[-0. -0.]\n1048576.0\nfunctrans ")
    (warning,) = [line for line in done.stderr.splitlines() if "Warning" in line]
    assert warning.startswith(f"{script}:3: RuntimeWarning: jit runs through NumPy, not natively: ")
    assert warning.endswith("llvmlite cannot be loaded: libLLVM.so is missing")
    assert "processor no native code, jit runs through NumPy: llvmlite cannot" in done.stdout
    assert "\njit       off: llvmlite cannot be loaded: libLLVM.so is missing\n" in done.stdout


def test_the_cache_directory_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path))
    assert directory() == tmp_path


def test_the_cache_directory_follows_the_platform(monkeypatch):
    monkeypatch.delenv("FUNCTRANS_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert directory() == Path("/elsewhere/functrans")
