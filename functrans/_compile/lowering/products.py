"""Products of matrices and vectors as calls of BLAS, whole or a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from functrans._compile.lowering.library import Call, Writer, layout_of, pointers_of, transposed
from functrans._compile.lowering.numbers import Code
from functrans._compile.schedule import views
from functrans._compile.schedule.views import View


@dataclass(frozen=True, slots=True, eq=False)
class Product(Call):
    """``y = a @ b``; ``b`` and ``y`` of one column are vectors to BLAS.

    In a tile a product of stacks has matrices for rows, any other those of one of its axes:
    ``along`` "n" rows of ``a`` and ``y``; "k" rows of ``b`` and columns of ``a``, over which it
    sums, so that it adds to ``y`` what some of them give.
    """

    along: str = ""

    name: ClassVar[str] = "gemm"

    @property
    def sizes(self) -> dict[str, int]:
        """Of each axis; those of stacks apart."""
        a, b = self.operands
        return dict(zip("nkm", (*a.shape[-2:], b.shape[-1]), strict=True))

    @property
    def rows(self) -> int:
        """How many there are, 0 without any."""
        return self.sizes[self.along] if self.along else self.batch[0] if self.batch else 0

    @property
    def places(self) -> list[tuple]:
        """Of what has rows, their axis comes first; else the stride along it is 0."""
        (a, b), (y,) = self.operands, self.outputs
        shown = [a, b, y]
        if self.along == "n":
            shown = [a, _apart(b, self.rows), y]
        elif self.along == "k":
            shown = [transposed(a), b, _apart(y, self.rows)]
        return [(v.root, v.offset, v.strides, v.windows) for v in shown]

    def function(self, name: str, code: Code, ranged: bool = False) -> tuple[tuple, str]:
        if not (ranged and self.along):
            return Call.function(self, name, code, ranged)
        pointers = pointers_of(self)
        w = Writer(code, self.outputs[0].root.aval.dtype, pointers, self.entry(), ranged)
        count = w.variable("i64")
        code.line(f"store i64 {code.op('sub i64 %stop, %start')}, ptr {count}")
        self._call(w, [], "%start", f"ptr {count}")
        return tuple(pointers), w.text(name, self.refuses)

    def body(self, w: Writer, indices: list[str]) -> None:
        self._call(w, indices, "0", None)

    def _call(self, w: Writer, batch: list[str], start: str, count: str | None) -> None:
        """A call for all rows, or some: the first of them, and the address of their number."""
        (a, b), (y,) = self.operands, self.outputs
        sizes = {axis: w.count(size) for axis, size in self.sizes.items()}
        at = dict.fromkeys("nkm", "0")
        if count:
            sizes[self.along], at[self.along] = count, start
        n, k, m = sizes.values()
        one, beta = w.number(1), w.number(1 if count and self.along == "k" else 0)
        (how_a, lead_a), (how_b, lead_b) = layout_of(a), layout_of(b)
        at_a, at_b, at_y = (w.address(v, [*batch, at[axes[0]], at[axes[1]]])
                            for v, axes in ((a, "nk"), (b, "km"), (y, "nm")))
        if self.sizes["m"] == 1:
            shape, flipped = ((k, n), "T") if how_a == "N" else ((n, k), "N")
            step = b.strides[-2] if self.sizes["k"] > 1 else 1
            w.call("gemv", flipped, *shape, one, at_a, w.count(lead_a), at_b, w.count(step), beta,
                   at_y, w.count(1))
        else:
            w.call("gemm", how_b, how_a, m, n, k, one, at_b, w.count(lead_b), at_a,
                   w.count(lead_a), beta, at_y, w.count(self.sizes["m"]))


def _apart(v: View, rows: int) -> View:
    """The whole of it for each row."""
    return views.broadcast(v, (rows, *v.shape))


def product(a: View, b: View, y: View) -> Product:
    """Of stacks of matrices; of a row and a matrix by the transposes."""
    if y.shape[-2] == 1:
        a, b, y = transposed(b), transposed(a), transposed(y)
    return Product((a, b), (y,), y.shape[:-2])
