"""What ``jit`` has done for a function so far, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from functrans._transforms.staging.entry import Entry


class Staging(NamedTuple):
    """One run of the user's function: why, for what arguments, in what time, and its programs."""

    reason: str
    arguments: str
    seconds: float
    entries: Sequence[Entry]

    def line(self) -> str:
        size = sum([len(entry.program.eqns) for entry in self.entries])
        return (
            f"staged for {self.arguments} in {self.seconds * 1e3:.1f} ms, {size} equations: "
            f"{self.reason}"
        )


class Explanation:
    """``jit(f).explain()``: a line for each staging, and below it those of its programs."""

    def __init__(self, name: str, stagings: Sequence[Staging]):
        self.name, self.stagings = name, stagings

    def __repr__(self) -> str:
        count = len(self.stagings)
        lines = [f"{self.name}: staged {'once' if count == 1 else f'{count} times'}"]
        for staging in self.stagings:
            lines.append(f"  {staging.line()}")
            lines += [f"    {len(e.program.eqns)} equations: {e.made}" for e in staging.entries]
        return "\n".join(lines)
