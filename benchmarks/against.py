"""Two states of this project side by side: ``python -m benchmarks --against COMMIT [names]``.

Each state has a process of its own, and they take turns, sample by sample, so that whatever drifts
drifts for both. Times are the processor's, of all threads, so that other processes count less.
Ratios are new over old: above 1 the working tree is slower.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

from benchmarks.report import Table, seconds

ROOT = Path(__file__).parents[1]


def compare(commit: str, wanted: Sequence[str], rounds: int = 15) -> None:
    """Print a table of the cases whose names begin with one of ``wanted``, else of all."""
    with _checkout(commit) as old:
        sides = _Side(old), _Side(ROOT)
        names = [n for n in sides[1].ask("list").split()
                 if n in sides[0].names and n.startswith(tuple(wanted) or "")]
        rows = [_compared(name, sides, rounds) for name in names]
        for side in sides:
            side.ask("stop")
    columns = ("case", commit, "working tree", "new / old", "quartiles")
    print(Table(f"Against {commit}", columns, rows).markdown())


def _compared(name: str, sides: tuple[_Side, _Side], rounds: int) -> tuple:
    pairs = [[float(side.ask(name)) for side in sides] for _ in range(rounds)]
    old, new = (min(times) for times in zip(*pairs, strict=True))
    ratios = sorted(b / a for a, b in pairs)
    spread = f"{ratios[rounds // 4]:.2f} to {ratios[-1 - rounds // 4]:.2f}"
    print(f"{name}: {median(ratios):.2f}", file=sys.stderr, flush=True)
    return name, seconds(old), seconds(new), median(ratios), spread


@contextmanager
def _checkout(commit: str) -> Any:
    """A folder with the sources of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", commit, "functrans"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


class _Side:
    """A process that times the cases with the library in a folder."""

    def __init__(self, folder: Path):
        code = f"import sys; sys.path[:0] = {[str(folder), str(ROOT)]!r}\n" \
               "from benchmarks import against; against.serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=folder,
        )
        self.names = set(self.ask("list").split())

    def ask(self, question: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(question, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()


def serve() -> None:
    """Answer on standard output: ``list`` the cases, time a call of one, or ``stop``."""
    from benchmarks.timing import _calls_a_sample, _sample  # the folder's library is in place now

    builders = cases()
    ready: dict[str, tuple[Callable[[], Any], int]] = {}
    for line in sys.stdin:
        question = line.strip()
        if question == "list":
            print(" ".join(builders), flush=True)
        elif question == "stop":
            print(flush=True)
            return
        else:
            if question not in ready:
                f = builders[question]()
                ready[question] = f, _calls_a_sample(f, process_time)[0]
            print(_sample(*ready[question], process_time), flush=True)


def cases() -> dict[str, Callable[[], Callable[[], Any]]]:
    """Each case's name, and what makes the call that is timed."""
    from benchmarks import jit, libraries, programs, speed, workloads
    from benchmarks.peers import Functrans
    from functrans import torch

    cases: dict[str, Callable[[], Callable[[], Any]]] = {
        name: lambda build=build: build([Functrans()]).contenders["functrans"]
        for name, build in speed.CASES.items()
    }
    for name, program in programs.PROGRAMS.items():
        slug = name.replace(",", "").replace(" ", "-")
        cases[f"shim-{slug}"] = lambda program=program: program(torch)
    for group, build in jit.CASES.items():
        for i, problem in enumerate(build()):
            cases[f"{group}-{i}"] = lambda p=problem: jit._thunk(jit.Ours(), p.build, p.args)
    for w in workloads.WORKLOADS:
        for cls in (libraries.Library, libraries.Compiled):
            name = f"{w.slug}{'-jit' if cls.compiled else ''}"
            cases[name] = lambda w=w, cls=cls: workloads.call(cls(w.dtype), w)
    return cases
