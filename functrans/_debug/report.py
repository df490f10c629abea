"""The doctor's report: as text, and as a page beside the source."""

from __future__ import annotations

import linecache
from html import escape
from pathlib import Path
from typing import Any

from functrans._debug.doctor import Finding, Line, Place, Visit

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
