"""What ``jit`` has done for a function, and what that runs, for people to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from functrans._compile.ir.program import Program

if TYPE_CHECKING:
    from functrans._compile.schedule.kernels import Schedule
    from functrans._transforms.staging.entry import Entry


# ---- What ``jit`` has done for a function so far, for people to read


class Staging(NamedTuple):
    """One run of the user's function: why, for what arguments, in what time, and its programs."""

    reason: str
    arguments: str
    seconds: float
    entries: Sequence[Entry]
    loops: Mapping[str, str] = MappingProxyType({})

    def line(self) -> str:
        size = sum([len(entry.program.eqns) for entry in self.entries])
        return (
            f"staged for {self.arguments} in {self.seconds * 1e3:.1f} ms, {size} equations: "
            f"{self.reason}"
        )


class Refusal(NamedTuple):
    """Why calls are left to Python, and for what arguments."""

    reason: str
    arguments: str
    entries: Sequence[Entry] = ()
    loops: Mapping[str, str] = MappingProxyType({})

    def line(self) -> str:
        return f"not staged for {self.arguments}: {self.reason}"


class Explanation:
    """``jit(f).explain()``: a line for each staging, and below it those of its programs."""

    def __init__(self, name: str, stagings: Sequence[Staging | Refusal]):
        self.name, self.stagings = name, stagings

    def __repr__(self) -> str:
        count = len([s for s in self.stagings if isinstance(s, Staging)])
        lines = [f"{self.name}: staged {'once' if count == 1 else f'{count} times'}"]
        for staging in self.stagings:
            lines.append(f"  {staging.line()}")
            lines += [f"    {len(e.program.eqns)} equations: {e.made}" for e in staging.entries]
            lines += [f"    loop at {line}: {text}" for line, text in staging.loops.items()]
        return "\n".join(lines)


# ---- What a compiled function runs, in readable form: its program at each stage, and a picture


class Compiled(Protocol):
    """What is shown of an entry of a compiled function."""

    name: str
    program: Program
    executable: Any


class Lowered:
    """``jit(f).lower(*args)``: what will run. Prints as the optimised program."""

    def __init__(self, entry: Compiled, reason: str):
        self.program = entry.program
        self.reason = reason
        self.entry = entry

    @property
    def optimised(self) -> Program:
        """The program after the passes."""
        return self.entry.executable.program

    @property
    def schedule(self) -> Schedule:
        """The steps that run: fused loops, and host steps where an op has no native code."""
        return self.entry.executable.native.schedule

    @property
    def llvm(self) -> str:
        """The LLVM IR of the fused loops."""
        return self.entry.executable.native.llvm

    def svg(self) -> str:
        """A picture of the schedule, which notebooks show by default."""
        from functrans._inspect import picture  # lazy: seldom used

        return picture.svg(self.schedule)

    _repr_svg_ = svg

    def _repr_html_(self) -> str:
        """The picture, and the program below it to be opened."""
        program = self.optimised._repr_html_()
        return f"{self.svg()}<details><summary>Optimised program</summary>{program}</details>"

    def html(self, path: str | PathLike | None = None) -> str:
        """A page with the picture and the texts, which is also written to ``path`` if given."""
        from functrans._inspect import picture  # lazy: seldom used

        parts = [("Program", repr(self.program)), ("Optimised program", repr(self.optimised)),
                 ("Schedule", repr(self.schedule)), ("LLVM", self.llvm)]
        text = picture.page(self.schedule, self.entry.name, parts)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def __repr__(self) -> str:
        return repr(self.optimised)
