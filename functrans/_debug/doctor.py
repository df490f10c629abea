"""What the gradient doctor checks while a function and its backward run once, and its report."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import aval_of, dtype_of, is_inexact
from functrans._core.bind import Tracer
from functrans._core.primitive import Primitive
from functrans._debug.observers import entry, user_stack
from functrans._ops.declare import Action
from functrans._transforms.arguments import open_all, require_numbers
from functrans._transforms.reverse.tracer import VJPTracer
from functrans._transforms.reverse.vjp import VJPTrace, pull_back
from functrans._transforms.watching.watched import Observer, Op, observed, value_of
from functrans.config import config
from functrans.errors import name_of

# ---- What the gradient doctor checks while a function and its backward run once

Place = tuple[str, int]


@dataclass(frozen=True)
class Finding:
    """A problem that the doctor noticed: its kind, the op, and the place."""

    kind: str
    place: Place
    op: str
    text: str


@dataclass
class Line:
    """The cost of a source line: nanoseconds, and bytes held for the backward."""

    forward: int = 0
    backward: int = 0
    held: int = 0


@dataclass
class Input:
    """An input: which argument it is, its aval, its gradient and a description of that."""

    label: str
    aval: Any
    gradient: Any
    text: str


@dataclass
class Visit:
    """The results of one run."""

    name: str
    value: Any = None
    findings: list[Finding] = field(default_factory=list)
    lines: dict[Place, Line] = field(default_factory=dict)
    inputs: list[Input] = field(default_factory=list)


class Doctor(Observer):
    """Checks every op of one trace, and every cotangent of its backward."""

    def __init__(self, visit: Visit, label: str):
        self.visit, self.label = visit, label
        self.places: dict[int, Place] = {}
        self.used: set[int] = set()
        # where derivatives end: op, place, slots of the operands
        self.stops: list[tuple[str, Place, list[int]]] = []
        self.parents: dict[int, list[int]] = {}
        self._held: set[int] = set()
        self._ended = 0

    # ---- the forward

    def begin(self, op: Op) -> tuple:
        return op, self._ended, perf_counter_ns()

    def end(self, token: tuple, out: Any) -> None:
        op, before, start = token
        took = perf_counter_ns() - start
        if op.label != self.label or self._ended != before or out is None:
            return  # an op of an inner transform, or one already checked
        self._ended += 1
        place = _place()
        line = self.visit.lines.setdefault(place, Line())
        line.forward += took
        line.held += self._bytes(op.entries)
        if op.sequence is not None:
            self.places[op.sequence] = place
        mine = [x.slot for x in op.args if self._is_mine(x)]
        self.used.update(mine)
        outs = out if isinstance(out, tuple | list) else (out,)
        for y in outs:
            if self._is_mine(y):
                self.parents.setdefault(y.slot, []).extend([s for s in mine if s != y.slot])
        with np.errstate(all="ignore"):
            self._check_values(op, outs, place)
            self._check_dtypes(op, outs, place)
            self._check_kinks(op, place)
        if mine and not any(isinstance(y, Tracer) for y in outs):
            self.stops.append((op.name, place, mine))

    def on_concretize(self, x: Any, use: str) -> None:
        if self._is_mine(x):
            self.used.add(x.slot)
            self.stops.append((use, _place(), [x.slot]))

    def _is_mine(self, x: Any) -> bool:
        return type(x) is VJPTracer and x.owner.fun == self.label

    def ends_of(self, slot: int) -> list[str]:
        """The ops at which values computed from the one in ``slot`` lose their derivative."""
        return list(dict.fromkeys([
            f"`{op}` on line {place[1]}" for op, place, slots in self.stops
            if self._descends(slots, slot)
        ]))

    def _descends(self, slots: list[int], ancestor: int) -> bool:
        todo, seen = list(slots), set[int]()
        while todo:
            s = todo.pop()
            if s == ancestor:
                return True
            if s not in seen:
                seen.add(s)
                todo += self.parents.get(s, [])
        return False

    def note(self, kind: str, place: Place, op: str, text: str) -> None:
        finding = Finding(kind, place, op, text)
        if finding not in self.visit.findings:
            self.visit.findings.append(finding)

    def _check_values(self, op: Op, outs: Sequence, place: Place) -> None:
        for y in outs:
            for what, mask in _became(op.args, y):
                self.note(f"{what} value", place, op.name,
                          f"{_count(mask)} of `{op.name}` {_verdict(mask, what)}")

    def _check_dtypes(self, op: Op, outs: Sequence, place: Place) -> None:
        have = [dtype_of(x) for x in op.args if isinstance(x, Tracer) and is_inexact(x)]
        if not have:
            return
        widest = max(have, key=_digits)
        for y in outs:
            if hasattr(y, "dtype") and is_inexact(y) and _digits(y.dtype) < _digits(widest):
                self.note("precision", place, op.name,
                          f"`{op.name}` rounds {widest} to {y.dtype}: {_digits(y.dtype)} digits "
                          "are left of values and of derivatives")

    def _check_kinks(self, op: Op, place: Place) -> None:
        if not isinstance(op.prim, Primitive):
            return  # a call
        xs = [value_of(x) for x in op.args]
        if any(x is None for x in xs):
            return
        facts = op.prim.facts
        for what, where, test in (("kink", op.prim.kinks, op.prim.at_kink),
                                  ("jump", facts.jumps, facts.at_jump)):
            mask = np.asarray(test(*map(np.asarray, xs), **op.params)) if test else np.False_
            if mask.any():
                self.note("kink", place, op.name,
                          f"`{op.name}` is at a {what} ({where}) in {_count(mask)}")

    def _bytes(self, entries: Sequence) -> int:
        """The bytes of the arrays in ``entries`` that were not held before."""
        total = 0
        for a in [a for e in entries for a in _arrays(e)]:
            a = a if a.base is None or not isinstance(a.base, np.ndarray) else a.base
            if id(a) not in self._held:
                self._held.add(id(a))
                total += a.nbytes
        return total

    # ---- the backward

    def back(self, op: Op, ct: Any) -> tuple:
        return op, ct, perf_counter_ns()

    def passed(self, token: tuple, parts: Sequence) -> None:
        op, ct, start = token
        took = perf_counter_ns() - start
        if op.label != self.label:
            return
        place = self.places.get(op.sequence or -1, ("", 0))
        self.visit.lines.setdefault(place, Line()).backward += took
        with np.errstate(all="ignore"):
            for slot, c in parts:
                for what, mask in _became([ct], c):
                    k = op.slots.index(slot) if slot in op.slots else 0
                    self.note(f"{what} adjoint", place, op.name,
                              f"the adjoint of operand {k} of `{op.name}`: {_count(mask)} "
                              f"{_verdict(mask, what)}")
            if type(op.entry) is tuple:
                for _, action, saved, _ in op.entry:
                    if type(action) is Action and saved:
                        self._check_slope(op, action, saved, ct, place)

    def _check_slope(self, op: Op, action: Any, saved: Sequence, ct: Any, place: Place) -> None:
        numbers = [value_of(v) for v in saved]
        ct = value_of(ct)
        if ct is None or any(v is None for v in numbers):
            return
        slope = np.asarray(action.act(np.ones((), dtype_of(ct)), *numbers))
        ct, slope = np.broadcast_arrays(ct, slope)
        wild = (ct == 0) & ~np.isfinite(slope) | (slope == 0) & ~np.isfinite(ct)
        if wild.any():
            self.note("strong zero", place, op.name,
                      f"0 times infinity in {_count(wild)} of the derivative of `{op.name}` was "
                      "taken as 0")
        # a selection by where, or by multiplication with a mask, is meant to be flat
        flat = (slope == 0) & (ct != 0) & np.isfinite(ct)
        if flat.any() and op.name != "where" and (flat.all() or op.name != "multiply"):
            self.note("saturated", place, op.name,
                      f"the slope of `{op.name}` is exactly 0 in {_count(flat)}")


def _place() -> Place:
    stack = user_stack()
    return (stack[-1].filename, stack[-1].lineno or 0) if stack else ("", 0)


def _number(x: Any) -> np.ndarray:
    return np.asarray(value_of(x))


def _any(test: Callable, x: Any) -> bool:
    x = value_of(x)
    if x is None:
        return False
    x = np.asarray(x)
    return x.dtype.kind in "fc" and bool(test(x).any())


def _digits(dtype: np.dtype) -> int:
    return int(np.finfo(dtype).precision) if dtype.kind in "fc" else 2


def _count(mask: Any) -> str:
    mask = np.asarray(mask)
    if mask.ndim == 0:
        return "its one entry"
    first = entry(tuple(int(i) for i in np.argwhere(mask)[0]))
    return f"{int(mask.sum())} of {mask.size} entries (first {first})"


def _became(before: Sequence, after: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Where a value is what none of those before it is, NaN or infinite."""
    for what, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        if _any(test, after) and not any([_any(test, x) for x in before]):
            yield what, test(_number(after))


def _verdict(mask: np.ndarray, what: str) -> str:
    return f"{'is' if np.sum(mask) == 1 else 'are'} {what}, what came in is not"


def _arrays(x: Any) -> list[np.ndarray]:
    """The arrays in a tape entry."""
    if isinstance(x, np.ndarray):
        return [x]
    if isinstance(x, VJPTracer):
        return _arrays(x.primal)
    if isinstance(x, tuple | list):
        return [a for v in x for a in _arrays(v)]
    if isinstance(x, dict):
        return [a for v in x.values() for a in _arrays(v)]
    saved = [getattr(x, name, None) for name in ("y", "xs") if hasattr(x, name)]
    return [a for v in saved for a in _arrays(v)]


def visit(f: Callable, args: tuple, kwargs: dict) -> Visit:
    """Run ``f`` and the backward of the sum of its outputs once, and check every op."""
    opened = open_all("explain", f, args)
    name = name_of(f)
    seen = Visit(name)
    label = f"explain({name})"
    doctor = Doctor(seen, label)
    with config(jit=False), observed(doctor), np.errstate(all="ignore"):
        trace = VJPTrace(label)
        try:
            inputs = [[trace.input(v) for v in a.primals] if a else [] for a in opened]
            traced = [a.rebuild(v) if a else x
                      for a, v, x in zip(opened, inputs, args, strict=True)]
            out = f(*traced, **kwargs)
            outs, structure = tree.flatten(out)
            require_numbers(f"explain: `{name}`", outs)
            values = [trace.lower(y) for y in outs]
            seen.value = tree.unflatten(structure, values)
            seeds = [np.ones(aval_of(v).shape, aval_of(v).dtype) for v in values]
            flat = [x for xs in inputs for x in xs]
            cts = iter(pull_back(trace, outs, seeds, flat, consume=False))
        finally:
            trace.closed = True
    for i, xs in enumerate(inputs):
        for j, x in enumerate(xs):
            label = f"argument {i}" + (f", leaf {j}" if len(xs) > 1 else "")
            seen.inputs.append(_input(doctor, label, x, next(cts)))
    return seen


def _input(doctor: Doctor, label: str, x: VJPTracer, ct: Any) -> Input:
    """An input, with a description of its gradient."""
    if ct is None:
        if x.slot not in doctor.used:
            text = "not used"
        else:
            at = ", ".join(doctor.ends_of(x.slot))
            text = "disconnected: no derivative leads from the output to it"
            text += f"; it ends in {at}" if at else "; what was made of it is not in the output"
        doctor.note("disconnected", ("", 0), "", f"{label}: {text.removeprefix('disconnected: ')}")
        return Input(label, aval_of(x.primal), None, text)
    g = np.conjugate(_number(ct))
    bad = ~np.isfinite(g)
    if bad.any():
        text = f"not finite in {_count(bad)}"
    elif not g.any() and g.size:
        causes = [f for f in doctor.visit.findings if f.kind == "saturated"]
        at = ", ".join(dict.fromkeys([f"`{f.op}` on line {f.place[1]}" for f in causes]))
        text = "exactly zero" + (f": slopes vanish in {at}" if at else "")
        doctor.note("zero gradient", ("", 0), "",
                    f"{label}: {text.removeprefix('exactly zero: ')}")
    else:
        zero = int((g == 0).sum())
        text = f"of size {float(np.abs(g).max(initial=0.0)):.3g}"
        text += f", zero in {zero} of {g.size} entries" if zero else ""
    return Input(label, aval_of(x.primal), g, text)


# ---- The doctor's report: as text, and as a page beside the source

CONTEXT = 3  # source lines shown above and below those reported

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; color: #24292f; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: 1px 8px; text-align: left; vertical-align: top; }
td.number { text-align: right; color: #57606a; font-variant-numeric: tabular-nums; }
pre { margin: 0; font: 13px/1.45 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
tr.found td { background: #fdf1e0; }
.kind { font-weight: bold; color: #9a4f00; }
"""


class Report:
    """What ``explain`` returns: ``print`` it, or read its parts.

    ``findings`` (kind, place, op, text), ``lines`` (file and line -> nanoseconds and bytes),
    ``inputs`` (label, aval, gradient, text), ``value``.
    """

    def __init__(self, visit: Visit):
        self._visit = visit
        self.name = visit.name
        self.value: Any = visit.value
        self.findings: list[Finding] = visit.findings
        self.lines: dict[Place, Line] = visit.lines
        self.inputs = visit.inputs

    def kinds(self) -> set[str]:
        """The kinds of the findings."""
        return {f.kind for f in self.findings}

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Report of {self.name}: {len(self.findings)} findings>"

    def text(self, times: bool = True) -> str:
        """The report: source lines with the findings in each and, with ``times``, their costs."""
        out = [f"{self.name}: {_plural(len(self.findings), 'finding')}"]
        out += [f"  {x.label}, {x.aval!r}: gradient {x.text}" for x in self.inputs]
        for file, lines in self._by_file().items():
            out += ["", file or "elsewhere"]
            for n in sorted(lines):
                line = self.lines.get((file, n), Line())
                cost = f"{_micro(line.forward)} + {_micro(line.backward)}  " if times else ""
                held = f"{line.held} B"
                out.append(f"{n:5}  {cost}{held:>9}  {_source(file, n).strip()}")
                out += [f"       ! {f.kind}: {f.text}" for f in self._at((file, n))]
        return "\n".join(out)

    def _by_file(self) -> dict[str, set[int]]:
        files: dict[str, set[int]] = {}
        for file, n in [*self.lines, *[f.place for f in self.findings]]:
            if file:
                files.setdefault(file, set()).add(n)
        return files

    def _at(self, place: Place) -> list[Finding]:
        return [f for f in self.findings if f.place == place]

    def html(self, path: Any = None) -> str:
        """The report as a page, which is also written to ``path``."""
        rows = [f"<li>{escape(x.label)}, {escape(repr(x.aval))}: gradient {escape(x.text)}</li>"
                for x in self.inputs]
        body = [f"<h1>{escape(self.name)}</h1>", f"<ul>{''.join(rows)}</ul>"]
        for file, lines in self._by_file().items():
            body.append(f"<h2>{escape(file)}</h2><table><tr><th>line</th><th>forward</th>"
                        "<th>backward</th><th>held</th><th>source</th><th>found</th></tr>")
            body += [self._row(file, n) for n in _around(file, lines)]
            body.append("</table>")
        page = (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f"<title>{escape(self.name)}</title><style>{STYLE}</style></head>\n"
            f"<body>{''.join(body)}</body></html>\n"
        )
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def _row(self, file: str, n: int) -> str:
        line, findings = self.lines.get((file, n)), self._at((file, n))
        notes = "".join([f'<div><span class="kind">{escape(f.kind)}</span> {escape(f.text)}</div>'
                         for f in findings])
        costs = ["", "", ""] if line is None else [
            _micro(line.forward), _micro(line.backward), f"{line.held} B"]
        cells = "".join([f'<td class="number">{c}</td>' for c in (n, *costs)])
        row = '<tr class="found">' if findings else "<tr>"
        return (
            f"{row}{cells}"
            f"<td><pre>{escape(_source(file, n))}</pre></td><td>{notes}</td></tr>"
        )

    def _repr_html_(self) -> str:
        return self.html()


def _source(file: str, n: int) -> str:
    return linecache.getline(file, n).rstrip("\n")


def _around(file: str, lines: set[int]) -> list[int]:
    last = len(linecache.getlines(file)) or max(lines)
    near = {m for n in lines for m in range(n - CONTEXT, n + CONTEXT + 1)}
    return sorted([n for n in near if 1 <= n <= max(last, max(lines))])


def _micro(ns: int) -> str:
    return f"{ns / 1000:.1f}us"


def _plural(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"
