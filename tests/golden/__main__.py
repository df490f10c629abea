"""Compare what functrans writes and shows with a record of it.

    python -m tests.golden            say what differs from the record; 1 if anything does
    python -m tests.golden --renew    write the record anew, for a change that is meant

The record holds a hash of each program as staged and as optimised, of its schedule and of its LLVM
text, for the workloads of the benchmarks and the calls of docs/coverage.md; a hash of the
parameters of each public name; and every row with its family and columns. Schedules and LLVM texts
depend on the processor: on another kind than the record's they are left out. Times are compared by
``python -m benchmarks --against REV``.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np

import functrans as ft
import functrans.numpy as fnp
from benchmarks import coverage, libraries, workloads
from functrans._ops.declare import TABLE
from tests import compiling

RECORD = Path(__file__).with_name("record.json")
ROOT = str(Path(__file__).parents[2])
# Workloads of more entries than this are staged at the smaller sizes only.
LARGEST = 200_000
SECTIONS = ("programs", "machine", "names", "rows")


def recorded() -> dict[str, Any]:
    """Everything that is compared."""
    with warnings.catch_warnings(), compiling.without_optimising():
        warnings.simplefilter("ignore")
        stages = dict(_stages())
    return {
        "processor": f"{llvm.get_host_cpu_name()} {ft.__version__.split('+')[0]}",
        "programs": {name: s[:2] for name, s in stages.items()},
        "machine": {name: s[2:] for name, s in stages.items()},
        "names": dict(_names()),
        "rows": {name: _row(row) for name, row in sorted(TABLE.items())},
    }


class _Noting(libraries.Library):
    """Notes the derivatives that would be compiled."""

    def __init__(self, dtype: str):
        super().__init__(dtype)
        self.noted: list[Callable[..., Any]] = []

    def compile(self, f: Callable[..., Any]) -> Callable[..., Any]:
        self.noted.append(f)
        return f


def _stages() -> Iterator[tuple[str, list[str]]]:
    for w in workloads.WORKLOADS:
        if np.prod(w.sizes, dtype=float) <= LARGEST:
            library = _Noting(w.dtype)
            f, args = w.build(library, *w.sizes)
            args = tuple(map(library.own, args))
            getattr(library, w.way)(f, args)
            for k, derived in enumerate(library.noted):
                yield f"{w.title}: {k}", _hashes(derived, args)
    for call in coverage.calls():
        f = coverage.scalar(coverage.function(call, fnp), fnp)
        count = len(call.variables)
        xs = [coverage.VARIABLES[v] for v in call.variables]
        if not any(np.iscomplexobj(x) for x in xs):
            yield call.text, _hashes(ft.grad(f, tuple(range(count))), xs)


def _hashes(f: Callable[..., Any], args: Sequence[Any]) -> list[str]:
    """Hashes of the program, the optimised one, the schedule and the LLVM text, or the error."""
    try:
        lowered = ft.jit(f).lower(*args)
        return [_hash(s) for s in (repr(lowered.program), repr(lowered.optimised),
                                   repr(lowered.schedule), lowered.llvm)]
    except (ft.errors.FunctransError, ValueError, TypeError, LookupError) as error:
        return [type(error).__name__] * 4


def _hash(text: str) -> str:
    """A hash that neither addresses nor the place of the checkout change."""
    text = re.sub(r"0x[0-9a-f]{6,}", "address", text.replace(ROOT, ""))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names() -> Iterator[tuple[str, str]]:
    for module in _public_modules():
        published = getattr(module, "__all__", None)
        for name in sorted(published or vars(module)):
            value = getattr(module, name, None)
            own = published or getattr(value, "__module__", "") == module.__name__
            if own and not name.startswith("_") and not inspect.ismodule(value):
                yield f"{module.__name__}.{name}", _described(value)


def _public_modules() -> Iterator[Any]:
    yield ft
    for found in pkgutil.walk_packages(ft.__path__, "functrans."):
        if not any(part.startswith("_") for part in found.name.split(".")[1:]):
            yield importlib.import_module(found.name)


def _described(value: Any) -> str:
    """The parameters of a name without their types, and whether it has a docstring."""
    try:
        parameters = inspect.signature(value).parameters.values()
        text = ", ".join(f"{p.kind.name[:12]} {p.replace(annotation=p.empty)}" for p in parameters)
    except (TypeError, ValueError):
        text = type(value).__name__
    text = re.sub(r" at 0x\w+", "", text)
    return f"{_hash(text)[:8]}{' documented' if inspect.getdoc(value) else ''}"


def _row(row: Any) -> str:
    return f"{type(row).__name__} {row.differentiable} {row.domain} {sorted(map(str, row.kinks))}"


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """A line for each entry that was added, removed or changed."""
    for section in SECTIONS:
        if section == "machine" and old["processor"] != new["processor"]:
            continue
        before, now = old[section], new[section]
        for name in sorted({*before, *now}):
            if name not in now:
                yield f"{section}: {name} is gone"
            elif name not in before:
                yield f"{section}: {name} is new"
            elif before[name] != now[name]:
                yield f"{section}: {name} has changed: {before[name]} -> {now[name]}"


def main(argv: Sequence[str]) -> int:
    """Compare with the record, or renew it."""
    new = recorded()
    if "--renew" in argv:
        RECORD.write_text(json.dumps(new, indent=0, sort_keys=True) + "\n")
        return 0
    found = list(differences(json.loads(RECORD.read_text()), new))
    print("\n".join(found) or "nothing differs from the record")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
