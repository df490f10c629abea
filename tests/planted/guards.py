"""Which tests guard a line of the package: those that run it.

    python -m tests.planted.guards         run the quick suite and note what each test runs
    python -m tests.planted.guards FILE    name the tests that run most of a file, the best first

The notes go into ``build/guards``, a database of the package ``coverage``; how long each test
takes goes into ``build/guards.xml``. A run of the suite takes about twice its usual time with it.
"""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "build" / "guards"
NAMED = 20
# Tests that are run for an error at most, and the seconds that they take together.
TESTS, SECONDS = 40, 40.0
# First and last of some lines, then of those around them, and so on.
Lines = tuple[tuple[int, int], ...]


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
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-p", __spec__.name,
               f"--junitxml={NOTES}.xml", "tests"]
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
        self.notes = notes
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

    def selected(self, file: str, lines: Lines) -> list[str]:
        """The tests that run some lines, or what stands in them; short and particular ones first.

        What a module does when it is imported is run by all of its tests, and noted for none:
        there, these are the tests that run a function which reads the name that is given.
        """
        by_line = self.by_line(file)
        tests: set[str] = set()
        for first, last in lines:
            tests = {t for n in range(first, last + 1) for t in by_line.get(n, ())}
            if tests:
                break
        else:
            tests = self._readers(file, lines[-1][0])
        count = Counter(t for names in by_line.values() for t in names)
        rank = {t: (int(math.log2(max(self.seconds[t], 0.5))), count[t], t) for t in tests}
        chosen, total = [], 0.0
        for test in sorted(tests, key=rank.__getitem__):
            total += self.seconds[test]
            if chosen and (total > SECONDS or len(chosen) == TESTS):
                break
            chosen.append(test)
        return chosen

    def is_run_at_import(self, file: str, lines: Lines) -> bool:
        """Whether a line is also run outside of tests."""
        known = self.data.contexts_by_lineno(self.paths[file]) if file in self.paths else {}
        return any("" in known.get(n, ()) for n in range(lines[0][0], lines[0][1] + 1))

    def _readers(self, file: str, line: int) -> set[str]:
        """The tests of what reads a name that is given at import, or else of the file."""
        by_line = self.by_line(file)
        tree = ast.parse((ROOT / file).read_text())
        outside = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
        for statement in [s for n in outside for s in n.body if s.lineno == line]:
            if isinstance(statement, ast.FunctionDef):
                lines = range(line, (statement.end_lineno or line) + 1)
                return {t for n in lines for t in by_line.get(n, ())}
            names = {n.id for n in ast.walk(statement)
                     if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if tests := {t for n in names for t in self._reading(n)}:
                return tests
        known = self.data.contexts_by_lineno(self.paths[file]) if file in self.paths else {}
        seen = line in known or "/numba/" in file  # what numba compiles is run unseen
        return {t for names in by_line.values() for t in names} if seen else set()

    def _reading(self, name: str) -> set[str]:
        """The tests that run a line with a name."""
        found: set[str] = set()
        for path in (ROOT / "functrans").rglob("*.py"):
            source = path.read_text()
            if name in source:
                by_line = self.by_line(path.relative_to(ROOT).as_posix())
                for n, text in enumerate(source.splitlines(), 1):
                    if n in by_line and re.search(rf"\b{name}\b", text):
                        found.update(by_line[n])
        return found

    @cached_property
    def seconds(self) -> dict[str, float]:
        """Test -> the seconds that it takes with all its parameters."""
        total: dict[str, float] = defaultdict(float)
        for case in xml.parse(f"{self.notes}.xml").iter("testcase"):
            file = case.get("classname", "").replace(".", "/")
            name = case.get("name", "").split("[")[0]
            total[f"{file}.py::{name}"] += float(case.get("time", "0"))
        return total

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
