"""A schedule as a picture: the steps, from top to bottom, and the buffers between them.

Each loop nest is a box with its loops, operations and reductions; library calls, loops, branches
and host steps are boxes of other colours. An arrow leads from the step that fills a buffer to each
step that reads it, labelled with the buffer's name and type. Inputs are at the top, outputs at the
bottom.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from functrans._compile.ir.program import Const, Var, aval_of_atom
from functrans._compile.schedule.kernels import (
    Call,
    HostStep,
    Kernel,
    Nested,
    Schedule,
    Step,
    Tiles,
    place,
)
from functrans._compile.schedule.views import View

# Pixels. The font is monospaced: a letter is WIDE wide, within a percent.
WIDE, LINE, PAD, GAP, BETWEEN = 7.25, 17, 12, 44, 28
# From a wire to its label.
LABEL = 7
# Operations that a box lists; longer lists lose their middle.
LISTED = 12
# Letters in a line of a box.
LETTERS = 56
# How often the boxes are moved towards those that they are connected to.
SWEEPS = 8
# How much more a bend is drawn to the next bend of its wire than to the ends of the wire.
STRAIGHT = 8

STYLE = """
text { font: 12px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #24292f; }
.head { font-weight: bold; }
.quiet { fill: #6e7781; }
rect { stroke-width: 1.2; }
.kernel { fill: #eaf3fc; stroke: #4a86c5; }
.call { fill: #eaf7ec; stroke: #4b9a5a; }
.host { fill: #fdf1e0; stroke: #d08a2e; }
.end { fill: #f3f4f6; stroke: #8c959f; }
.wire { fill: none; stroke: #8c959f; stroke-width: 1.3; }
.label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; fill: #57606a; }
"""


@dataclass(eq=False)
class _Box:
    """A step, an input or an output, with its lines; or a bend, where a wire passes a row."""

    kind: str
    head: str = ""
    lines: list[str] = field(default_factory=list)
    reads: list[Any] = field(default_factory=list)
    fills: list[Any] = field(default_factory=list)
    labels: dict[Any, str] = field(default_factory=dict)  # of what it fills
    row: int = 0
    x: float = 0.0
    y: float = 0.0
    bottom: float = 0.0
    wires: list[tuple[_Box, Any]] = field(default_factory=list)  # who fills each read

    @property
    def width(self) -> float:
        if self.kind == "bend":
            return 0.0
        letters = max(map(len, [self.head, *self.lines]))
        return max(WIDE * letters + 2 * PAD, sum(map(self._room, self.labels)))

    @property
    def height(self) -> float:
        return 0.0 if self.kind == "bend" else LINE * (1 + len(self.lines)) + 2 * PAD - 4

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    def _room(self, buffer: Any) -> float:
        return WIDE * len(self.labels[buffer]) + 2 * PAD

    def leaves(self, buffer: Any) -> float:
        """Where the wires of a buffer start: side by side, with room for the labels."""
        if buffer not in self.labels:
            return self.middle
        at = self.middle - sum(map(self._room, self.labels)) / 2
        for other in self.labels:
            if other is buffer:
                break
            at += self._room(other)
        return at + self._room(buffer) / 2 if len(self.labels) > 1 else self.middle

    def arrives(self, i: int) -> float:
        """Where wire ``i`` ends."""
        return self.x + self.width * (i + 1) / (len(self.wires) + 1)


def svg(schedule: Schedule) -> str:
    """The picture as SVG text, complete in itself."""
    rows = _rows(_bend(_connect(_boxes(schedule))))
    width, height = _place(rows)
    boxes = [box for row in rows for box in row]
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width:.0f} {height:.0f}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8c959f"/></marker>'
        "</defs>",
        f'<rect {size} fill="#ffffff"/>',
        *[_wires(box) for box in boxes if box.wires],
        *[_draw(box) for box in boxes if box.kind != "bend"],
        *[_labels(box) for box in boxes if box.labels],
        "</svg>",
    ]) + "\n"


def page(schedule: Schedule, title: str, parts: Sequence[tuple[str, str]]) -> str:
    """An HTML page: the picture, then each (heading, text), folded."""
    folded = "\n".join(
        f"<details><summary>{_escape(head)}</summary><pre>{_escape(text)}</pre></details>"
        for head, text in parts
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{_escape(title)}</title>\n"
        "<style>body { font: 15px system-ui, sans-serif; margin: 2em; color: #24292f; } "
        "pre { font-size: 12px; overflow-x: auto; } summary { cursor: pointer; margin: .5em 0; }"
        f"</style></head>\n<body><h1>{_escape(title)}</h1>\n{svg(schedule)}{folded}\n"
        "</body></html>\n"
    )


# ---- boxes


def _boxes(s: Schedule) -> list[_Box]:
    inputs = [_Box("end", "input", [_type(v, s)], fills=[v]) for v in s.program.inputs]
    steps = [_step(x, i, s) for i, x in enumerate(s.steps)]
    outputs = []
    for a, declared in zip(s.outputs, s.program.outputs, strict=True):
        text = f"{s.names(a)}:" if isinstance(a, Var) else ""
        text += f"{aval_of_atom(declared)!r}" if isinstance(a, Var | Const) else repr(a)
        outputs.append(_Box("end", "output", [text], [a] if isinstance(a, Var) else []))
    read = {v for box in steps for v in box.reads if isinstance(v, Var)}
    for box in steps:
        box.labels = {v: _type(v, s) for v in dict.fromkeys(box.fills) if v in read}
    return [*inputs, *steps, *outputs]


def _type(v: Var, s: Schedule) -> str:
    return f"{s.names(v)}:{v.aval!r}"


def _step(step: Step, i: int, s: Schedule) -> _Box:
    if isinstance(step, Kernel):
        return _kernel(step, i, s)
    if not isinstance(step, Tiles):
        return _apart(step, i, s)
    boxes = [_kernel(k, i, s) if isinstance(k, Kernel) else _apart(k, i, s) for k in step.kernels]
    lines = [line for box in boxes for line in (box.head.partition(": ")[2], *box.lines)]
    head = f"{i}: {step.rows:,} rows, {step.tile:,} at a time"
    return _Box("kernel", head, lines, step.reads, step.makes)


def _kernel(k: Kernel, i: int, s: Schedule) -> _Box:
    loops = " \u00d7 ".join(f"{n:,}" for n in k.space)
    reads = k.reads
    several = [x for x in k.loads if reads.count(x.buffer) > 1]
    called = {x.name: _buffer(x.buffer, s) for x in k.loads if x not in several}

    def operand(x: Any) -> str:
        return called.get(x, x) if isinstance(x, str) else _number(x)

    lines = [f"{x.name} = {_buffer(x.buffer, s)}[{place(x.offset, x.strides, x.index)}]"
             for x in several]
    lines += [f"{op.name} = {op.row} {' '.join(map(operand, op.args))}" for op in k.ops]
    if len(lines) > LISTED + 1:
        half = LISTED // 2
        lines[half:-half] = [f"... {len(lines) - 2 * half} more lines ..."]
    lines += [f"{s.names(r.buffer)} = {r.row} {operand(r.value)}" for r in k.reductions]
    computed = {op.name for op in k.ops}
    lines += [f"{s.names(x.buffer)}[{place(x.offset, x.strides)}] = {operand(x.value)}"
              for x in k.stores if x.value not in computed]
    return _Box("kernel", f"{i}: loop {loops}" if loops else f"{i}: once", _cut(lines), reads,
                k.makes)


def _buffer(x: Var | Const, s: Schedule) -> str:
    return s.names(x) if isinstance(x, Var) else f"<{x.aval!r}>"


def _apart(step: Call | Nested | HostStep, i: int, s: Schedule) -> _Box:
    outs = ", ".join([s.names(v) for v in step.makes if v in s.shapes])
    operands = " ".join(_operand(x, s) for x in step.operands)
    if isinstance(step, Call):
        return _Box("call", f"{i}: call", _cut([f"{outs} = {step.name} {operands}"]), step.reads,
                    step.makes)
    if isinstance(step, Nested):
        programs = [f"{label}: {len(p.eqns)} equations" for label, p in step.programs.items()]
        lines = [f"{outs} = {step.name} {operands}", *programs]
        return _Box("call", f"{i}: {step.note}", _cut(lines), step.reads, step.makes)
    lines = [f"{outs} = {step.eqn.prim} {operands}"]
    lines += [f"{name}={value!r}" for name, value in step.eqn.params.items()]
    return _Box("host", f"{i}: NumPy", _cut(lines), step.reads, step.makes)


def _operand(x: Any, s: Schedule) -> str:
    return _buffer(x.root, s) if isinstance(x, View) else _number(x)


def _number(x: Any) -> str:
    return f"{x:.6g}" if isinstance(x, float | np.floating) else str(x)


def _cut(lines: list[str]) -> list[str]:
    return [x if len(x) <= LETTERS else x[: LETTERS - 3] + "..." for x in lines]


def _connect(boxes: list[_Box]) -> list[_Box]:
    """The boxes, each wired to those that fill its reads, and in the row below all of these.

    Outputs share the last row. A buffer that several steps fill comes from each of them.
    """
    makers: dict[Any, list[_Box]] = defaultdict(list)
    for box in boxes:
        for buffer in dict.fromkeys(box.reads):
            box.wires += [(maker, buffer) for maker in makers[buffer]]
        for buffer in dict.fromkeys(box.fills):
            makers[buffer].append(box)
        is_input = box.head == "input"
        box.row = 0 if is_input else 1 + max((maker.row for maker, _ in box.wires), default=0)
    last = max((box.row for box in boxes if box.head != "output"), default=0) + 1
    for box in boxes:
        box.row = last if box.head == "output" else box.row
    return boxes


def _bend(boxes: list[_Box]) -> list[_Box]:
    """The boxes and a bend in each row that a wire passes; wires of one buffer share it."""
    bends: dict[tuple, _Box] = {}

    def via(maker: _Box, buffer: Any, row: int) -> _Box:
        if row == maker.row:
            return maker
        key = maker, buffer, row
        if key not in bends:
            bends[key] = _Box("bend", row=row, wires=[(via(maker, buffer, row - 1), buffer)])
        return bends[key]

    for box in boxes:
        box.wires = [(via(maker, buffer, box.row - 1), buffer) for maker, buffer in box.wires]
    return [*boxes, *bends.values()]


# ---- places


def _rows(boxes: list[_Box]) -> list[list[_Box]]:
    rows: dict[int, list[_Box]] = defaultdict(list)
    for box in boxes:
        rows[box.row].append(box)
    return [rows[i] for i in sorted(rows)]


def _place(rows: list[list[_Box]]) -> tuple[float, float]:
    """Positions of the boxes, each near what it is connected to; the size of the picture."""
    y = float(BETWEEN)
    readers: dict[_Box, list[_Box]] = defaultdict(list)
    for row in rows:
        tall = max(box.height for box in row)
        for box in row:
            box.y = y if box.kind == "bend" else y + (tall - box.height) / 2
            box.bottom = y + tall if box.kind == "bend" else box.y + box.height
            for maker, _ in box.wires:
                readers[maker].append(box)
        y += tall + GAP
    for row in rows:
        _settle(row, [_above(box) for box in row])
    for _ in range(SWEEPS):
        for row in reversed(rows):
            _settle(row, [_below(box, readers[box]) for box in row])
        for row in rows:
            _settle(row, [_above(box) + _below(box, readers[box]) for box in row])
    for row in rows:
        for box in row:
            box.wires.sort(key=lambda wire: wire[0].leaves(wire[1]))
    margin = min((box.x for row in rows for box in row), default=0.0) - BETWEEN
    for row in rows:
        for box in row:
            box.x -= margin
    ends = [box.x + box.width for row in rows for box in row]
    ends += [box.leaves(v) + LABEL + WIDE * len(text)
             for row in rows for box in row for v, text in box.labels.items()]
    return max(ends, default=0.0) + BETWEEN, y - GAP + BETWEEN


def _above(box: _Box) -> list[float]:
    """The places that draw a box from above; bends draw bends more, so that wires are straight."""
    return [x for maker, v in box.wires
            for x in [maker.leaves(v)] * (STRAIGHT if box.kind == maker.kind == "bend" else 1)]


def _below(box: _Box, readers: list[_Box]) -> list[float]:
    return [x for b in readers
            for x in [b.middle] * (STRAIGHT if box.kind == b.kind == "bend" else 1)]


def _settle(row: list[_Box], near: list[list[float]]) -> None:
    """Put boxes side by side, in the order of their preferred places and close to them."""
    goals = {box: sum(n) / len(n) if n else box.middle for box, n in zip(row, near, strict=True)}
    row.sort(key=goals.__getitem__)
    # blocks of boxes that touch, each at the average of its boxes' preferred places
    blocks: list[tuple[list[_Box], float]] = []
    for box in row:
        blocks.append(([box], goals[box]))
        while len(blocks) > 1 and _right(blocks[-2]) + BETWEEN > _leave(blocks[-1]):
            (b, at), (a, to) = blocks.pop(), blocks.pop()
            blocks.append((a + b, (at * len(b) + to * len(a)) / (len(a) + len(b))))
    for block in blocks:
        at = _leave(block)
        for box in block[0]:
            box.x, at = at, at + box.width + BETWEEN


def _extent(boxes: list[_Box]) -> float:
    return sum(box.width for box in boxes) + BETWEEN * (len(boxes) - 1)


def _leave(block: tuple[list[_Box], float]) -> float:
    return block[1] - _extent(block[0]) / 2


def _right(block: tuple[list[_Box], float]) -> float:
    return block[1] + _extent(block[0]) / 2


# ---- drawing


def _wires(box: _Box) -> str:
    """The wires that arrive at a box with a tip, or pass straight through a bend."""
    drawn = []
    for i, (maker, buffer) in enumerate(box.wires):
        x0, y0, x1, y1 = maker.leaves(buffer), maker.bottom, box.arrives(i), box.y
        bend = (y1 - y0) / 2
        text = (f"M{x0:.1f} {y0:.1f} C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} "
                f"{x1:.1f} {y1:.1f}")
        if box.kind == "bend":
            drawn.append(f'<path class="wire" d="{text} V{box.bottom:.1f}"/>')
        else:
            drawn.append(f'<path class="wire" marker-end="url(#tip)" d="{text}"/>')
    return "".join(drawn)


def _labels(box: _Box) -> str:
    return "".join(
        f'<text class="label" x="{box.leaves(v) + LABEL:.1f}" y="{box.bottom + 15:.1f}">'
        f"{_escape(text)}</text>"
        for v, text in box.labels.items()
    )


def _draw(box: _Box) -> str:
    texts = [f'<text class="head" x="{PAD}" y="{PAD + 10}">{_escape(box.head)}</text>']
    for i, line in enumerate(box.lines):
        kind = ' class="quiet"' if line.startswith("...") else ""
        y = PAD + 10 + LINE * (i + 1)
        texts.append(f'<text{kind} x="{PAD}" y="{y}">{_escape(line)}</text>')
    return (f'<g transform="translate({box.x:.1f} {box.y:.1f})"><rect class="{box.kind}" rx="6" '
            f'width="{box.width:.1f}" height="{box.height:.1f}"/>{"".join(texts)}</g>')


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
