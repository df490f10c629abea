"""What a compiled function runs, for people: its program at each stage, and a picture."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

from functrans._compile.ir.program import Program

if TYPE_CHECKING:
    from functrans._transforms.staging.jit import Entry


class Lowered:
    """``jit(f).lower(*args)``: what will be run. Prints as the optimised program."""

    def __init__(self, entry: Entry, reason: str):
        self.program = entry.program
        self.reason = reason
        self._entry = entry

    @property
    def optimised(self) -> Program:
        """The program after the passes."""
        return self._entry.executable.program

    @property
    def schedule(self) -> Any:
        """The steps that are run: fused loops, and host steps where an op has no native code."""
        return self._entry.executable.native.schedule

    @property
    def llvm(self) -> str:
        """The LLVM IR of the fused loops."""
        return self._entry.executable.native.llvm

    def svg(self) -> str:
        """A picture of the schedule; in a notebook it is shown by itself."""
        from functrans._inspect import picture  # lazy: only for those who look

        return picture.svg(self.schedule)

    _repr_svg_ = svg

    def html(self, path: str | PathLike | None = None) -> str:
        """A page of the picture and the texts; written to ``path`` where one is given."""
        from functrans._inspect import picture  # lazy: only for those who look

        parts = [("Program", repr(self.program)), ("Optimised program", repr(self.optimised)),
                 ("Schedule", repr(self.schedule)), ("LLVM", self.llvm)]
        text = picture.page(self.schedule, self._entry.name, parts)
        if path is not None:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        return text

    def __repr__(self) -> str:
        return repr(self.optimised)
