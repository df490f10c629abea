"""Plant the errors of the table, one at a time, and say which of them the tests catch.

    python -m tests.planted                  all of them
    python -m tests.planted vmap cache       those with one of these words in their name or file

The checkout is copied to a temporary folder, where the tests are run once without an error: they
must pass there. Then each error is planted in turn and its tests are run in a process of their own.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.planted.error import Planted
from tests.planted.errors import ERRORS

ROOT = Path(__file__).parents[2]
COPIED = ("functrans", "tests", "examples", "docs", "benchmarks", "pyproject.toml", "README.md",
          "CHANGELOG.md")
# Seconds that the tests of one error may take: an error that makes them hang is caught, too.
TIMEOUT = 300
# What pytest returns where tests have failed, as opposed to where they could not be run.
FAILED = 1


def main(words: Sequence[str]) -> int:
    """Plant the chosen errors; 0 if the tests catch them all."""
    chosen = [e for e in ERRORS if not words or any(w in e.name + e.file for w in words)]
    if not chosen:
        print(f"no planted error is called {' or '.join(words)}")
        return 2
    with copied() as folder:
        selection = list(dict.fromkeys(test for e in chosen for test in e.tests))
        code, output = run(folder, selection, TIMEOUT * len(chosen))
        if code != 0:
            print(f"the tests must pass before an error is planted:\n{output}")
            return 2
        missed = [e.name for e in chosen if not caught(folder, e)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} caught")
    return 1 if missed else 0


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the checkout for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="functrans-planted-") as name:
        for part in COPIED:
            source, target = ROOT / part, Path(name) / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        yield Path(name)


def caught(folder: Path, error: Planted) -> bool:
    """Whether the tests of an error fail where it is planted; says so."""
    with planted(folder, error):
        code, output = run(folder, error.tests, TIMEOUT)
    verdict = {None: "caught (hangs)", FAILED: "caught", 0: "SURVIVES"}.get(code)
    if verdict is None:
        verdict = "caught (crashes)" if code is not None and code < 0 else "TESTS DO NOT RUN"
    print(f"{verdict:18}{error.name}", flush=True)
    if not verdict.startswith("caught"):
        print(output)
    return verdict.startswith("caught")


@contextmanager
def planted(folder: Path, error: Planted) -> Iterator[None]:
    """The file of an error with the error in it."""
    path = folder / error.file
    sound = path.read_text()
    # the compiled module may look current: its size and its second can be those of the new text
    compiled = Path(importlib.util.cache_from_source(str(path)))
    compiled.unlink(missing_ok=True)
    path.write_text(error.planted_in(sound))
    try:
        yield
    finally:
        path.write_text(sound)
        compiled.unlink(missing_ok=True)


def run(folder: Path, tests: Sequence[str], timeout: float) -> tuple[int | None, str]:
    """What pytest returns for these tests, None where they do not end, and what it prints."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
               "--tb=short", *tests]
    environment = {**os.environ, "PYTHONPATH": str(folder), "FUNCTRANS_PROFILE": "quick"}
    try:
        done = subprocess.run(command, cwd=folder, env=environment, timeout=timeout, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
