"""``python -m functrans``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import functrans
from functrans.__main__ import main
from functrans.cache import directory


def test_it_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "functrans"], capture_output=True, text=True,
                          check=True)
    assert done.stdout.startswith(f"functrans {functrans.__version__}, ")


def test_the_report_runs_its_example(capsys):
    main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith(">>> ") for line in lines) == 5
    assert lines[-4] == "[0.09003057 0.24472847 0.66524096]"


def test_the_cache_directory_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path))
    assert directory() == tmp_path


def test_the_cache_directory_follows_the_platform(monkeypatch):
    monkeypatch.delenv("FUNCTRANS_CACHE_DIR", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert directory() == Path("/elsewhere/functrans")
