"""Which tests guard a line of the package: those that run it.

    python -m tests.planted.guards         run the quick suite and note what each test runs
    python -m tests.planted.guards FILE    name the tests that run most of a file, the best first

The notes go into ``build/guards``, a database of the package ``coverage``.
A run of the suite takes about twice its usual time with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "build" / "guards"
NAMED = 20


class Recording:
    """A plugin of pytest's: each test's lines are noted under its name, without parameters."""

    def __init__(self):
        self.coverage = coverage.Coverage(
            data_file=str(NOTES), data_suffix=True, source=[str(ROOT / "functrans")],
            config_file=False,
        )
        self.coverage.start()

    def pytest_runtest_setup(self, item):
        self.coverage.switch_context(item.nodeid.split("[")[0])

    def pytest_runtest_teardown(self, item):
        self.coverage.switch_context("")

    def pytest_unconfigure(self):
        self.coverage.stop()
        self.coverage.save()


def pytest_configure(config):
    """Record in the process that runs the tests, which with xdist is a worker."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Recording())


def record() -> int:
    """Run the suite and note what each test runs."""
    NOTES.parent.mkdir(exist_ok=True)
    for old in NOTES.parent.glob("guards*"):
        old.unlink()
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-p", __spec__.name, "tests"]
    environment = {**os.environ, "COVERAGE_CORE": "ctrace"}
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    notes = coverage.Coverage(data_file=str(NOTES), config_file=False)
    notes.combine()
    notes.save()
    return done.returncode


class Guards:
    """The notes of a run: for a line, the tests that run it."""

    def __init__(self, notes: Path = NOTES):
        if not notes.exists():
            raise FileNotFoundError(f"{notes} is missing: run python -m tests.planted.guards first")
        self.data = coverage.CoverageData(str(notes))
        self.data.read()
        self.paths = {self.relative(p): p for p in self.data.measured_files()}

    @staticmethod
    def relative(path: str) -> str:
        """``functrans/...`` of a path in any checkout."""
        parts = Path(path).parts
        return "/".join(parts[len(parts) - 1 - parts[::-1].index("functrans"):])

    def by_line(self, file: str) -> dict[int, list[str]]:
        """Line -> the names of the tests that run it."""
        if file not in self.paths:
            return {}
        lines = self.data.contexts_by_lineno(self.paths[file])
        return {line: [t for t in tests if t] for line, tests in lines.items()}

    def of(self, file: str) -> list[tuple[str, int]]:
        """The tests that run a file, with how many of its lines, most first."""
        return Counter(t for tests in self.by_line(file).values() for t in tests).most_common()


def main(files: Sequence[str]) -> int:
    """Record, or name the guards of files."""
    if not files:
        return record()
    guards = Guards()
    for file in files:
        print(file)
        for test, lines in guards.of(file)[:NAMED]:
            print(f"{lines:6} lines  {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
