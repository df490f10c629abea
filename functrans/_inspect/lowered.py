"""What a compiled function runs, in readable form: its program at each stage, and a picture."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol

from functrans._compile.ir.program import Program

if TYPE_CHECKING:
    from functrans._compile.schedule.kernels import Schedule


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
