"""Library calls: steps of native code that call BLAS and LAPACK, products row by row among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from functrans._compile.ir.program import Const, Var
from functrans._compile.lowering.numbers import Code, literal, type_of
from functrans._compile.nest.ir import FULL, RoomExceeded
from functrans._compile.schedule import views
from functrans._compile.schedule.views import Shape, View
from functrans._core.primitive import NanArrived
from functrans._kernels.routines import PREFIX, TILED

# ---- Library calls: steps of native code that call BLAS and LAPACK
#
# BLAS stores matrices by columns, as Fortran does, so it sees the transposes of ours. It is told to
# compute ``y.T = b.T @ a.T``, and nothing is copied.

# What a step that cannot go on raises: its status is the place in this list, from 1.
REFUSALS = (
    np.linalg.LinAlgError("Singular matrix"),
    np.linalg.LinAlgError("Matrix is not positive definite"),
    np.linalg.LinAlgError("Eigenvalues did not converge"),
    IndexError("an index is out of bounds for its axis"),
    NanArrived(),
    RoomExceeded(FULL),
)
# The largest size, as a library may count in 32 bits.
LARGEST = 2**31 - 1
# Entries of right sides below which they are solved for one by one: OpenBLAS shares several among
# threads, however few they are, which wait for each other longer than the work takes.
ALONE = 10_000
SINGULAR, INDEFINITE, UNCONVERGED, OUTSIDE, ARRIVED, ROOMLESS = range(1, 7)


def refuse(status: int) -> BaseException:
    """What NumPy raises where a step cannot go on."""
    error = REFUSALS[status - 1]
    return type(error)(*error.args)


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A step that reads views of buffers and fills others, matrix by matrix of a ``batch``.

    ``body`` writes the code for one of them.
    """

    operands: tuple[View, ...]
    outputs: tuple[View, ...]
    batch: Shape

    name: ClassVar[str] = ""
    refuses: ClassVar[bool] = False
    chunks: ClassVar[int] = 1

    @property
    def reads(self) -> list[Var | Const]:
        return [v.root for v in self.operands]

    @property
    def makes(self) -> list[Any]:
        return [v.root for v in self.outputs]

    @property
    def places(self) -> list[tuple]:
        """What it reads and writes: buffer, offset, strides and windows."""
        return [(v.root, v.offset, v.strides, v.windows) for v in (*self.operands, *self.outputs)]

    def function(self, name: str, code: Code, ranged: bool = False) -> tuple[tuple, str]:
        """The buffers that a function for this step is given, and its text.

        ``ranged``: it takes the matrices from %start to before %stop along the first axis, as a
        part of a tile.
        """
        pointers = pointers_of(self)
        dtype = self.outputs[0].root.aval.dtype
        writer = Writer(code, dtype, pointers, self.entry(), ranged)
        self.prepare(writer)
        if ranged:
            with code.loop("%start", "%stop") as i:
                over(writer, self.batch[1:], lambda rest: self.body(writer, [i, *rest]))
        else:
            over(writer, self.batch, lambda indices: self.body(writer, indices))
        return tuple(pointers), writer.text(name, self.refuses)

    @property
    def work(self) -> float:
        """About how many operations a run takes."""
        return sum(math.prod(v.shape) * max(v.shape, default=1) for v in self.outputs)

    def entry(self) -> str:
        """The type of what it loads and stores."""
        return type_of(self.outputs[0].root.aval.dtype)

    def prepare(self, w: Writer) -> None:
        """Write what happens once, before the matrices."""

    def body(self, w: Writer, indices: list[str]) -> None:
        raise NotImplementedError


def pointers_of(step: Any) -> dict[Any, str]:
    """The buffers that the function of a step is given, and what each is called in it."""
    buffers = dict.fromkeys([*step.reads, *step.makes])
    return {b: f"%buffer{i}" for i, b in enumerate(buffers)}


@dataclass(frozen=True, slots=True, eq=False)
class Refuse(Call):
    """Leave the program if a boolean or count is not 0; nothing reads the output."""

    status: int = ARRIVED

    name: ClassVar[str] = "refuse"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        flag = w.load(self.operands[0], indices)
        w.refuse_if(w.code.op(f"icmp ne {w.t} {flag}, 0"), self.status)


# The first letters of routines' names.
LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}


class Writer:
    """Lines of a function that calls routines on matrices of one dtype."""

    def __init__(
        self, code: Code, dtype: np.dtype, pointers: dict[Any, str], t: str, ranged: bool = False
    ):
        self.code, self.dtype, self.pointers, self.t = code, dtype, pointers, t
        self.ranged, self.renamed = ranged, {b: a for a, b in TILED.items()} if ranged else {}
        self.allocas: list[str] = []
        self.aligned = dtype.alignment  # LLVM expects 16 of an integer of 16 bytes

    def text(self, name: str, refuses: bool) -> str:
        """The function that has been written, its result a status if it ``refuses``."""
        self.code.line("ret i32 0" if refuses else "ret void")
        self.code.lines[:0] = self.allocas
        parameters = ", ".join(
            [f"ptr noalias {p}" for p in self.pointers.values()]
            + ["i64 %start", "i64 %stop"] * self.ranged
        )
        return self.code.function(f"internal {'i32' if refuses else 'void'} @{name}", parameters)

    def constant(self, t: str, text: str) -> str:
        """The address of a number that does not change."""
        name = f"{t}.{text}"
        self.code.functions[name] = f'@"{name}" = private unnamed_addr constant {t} {text}'
        return f'ptr @"{name}"'

    def count(self, n: int) -> str:
        return self.constant("i64", str(n))

    def number(self, x: float) -> str:
        return self.constant(self.t, literal(x, self.dtype))

    def variable(self, t: str) -> str:
        name = self.code.fresh("own")
        self.allocas.append(f"  {name} = alloca {t}")
        return name

    def call(self, routine: str, *args: str) -> None:
        """Call a routine: a letter is a choice, all else an address.

        Fortran wants the length of each letter after the arguments; C ignores them.
        """
        full = f"{PREFIX}{LETTERS[self.dtype.char]}{routine}"
        full = self.renamed.get(full, full)
        pointers = [self.constant("i8", str(ord(x))) if len(x) == 1 else x for x in args]
        lengths = ["i64 1" for x in args if len(x) == 1]
        kinds = ["ptr"] * len(args) + ["i64"] * len(lengths)
        self.code.functions[full] = f"declare void @{full}({', '.join(kinds)})"
        self.code.line(f"call void @{full}({', '.join([*pointers, *lengths])})")

    def refuse_unless_zero(self, info: str, status: int) -> None:
        have = self.code.op(f"load i32, ptr {info}")  # of 64 bits the lower half
        self.refuse_if(self.code.op(f"icmp ne i32 {have}, 0"), status)

    def refuse_if(self, condition: str, status: int) -> None:
        self.code.leave_if(condition, f"i32 {status}")

    # ---- memory

    def at(self, v: View, indices: Sequence[str], t: str | None = None) -> str:
        """The address of an entry; missing indices are 0."""
        return self.code.entry(t or self.t, self.pointers[v.root], v.offset, v.strides, indices)

    def address(self, v: View, indices: Sequence[str]) -> str:
        return f"ptr {self.at(v, indices)}"

    def load(self, v: View, indices: Sequence[str]) -> str:
        return self.code.op(f"load {self.t}, ptr {self.at(v, indices)}, align {self.aligned}")

    def store(self, v: View, indices: Sequence[str], x: str) -> None:
        self.code.line(f"store {self.t} {x}, ptr {self.at(v, indices)}, align {self.aligned}")

    def info(self) -> str:
        """A place for a routine's verdict."""
        name = self.variable("i64")
        self.code.line(f"store i64 0, ptr {name}")
        return name


def over(w: Writer, shape: Shape, body: Callable[[list[str]], None]) -> None:
    """Nested loops; ``body`` is given the counters, 0 along axes of length 1."""
    with ExitStack() as loops:
        body(["0" if n == 1 else loops.enter_context(w.code.loop("0", str(n))) for n in shape])


def copy(w: Writer, source: View | None, target: View, batch: list[str], part: str = "") -> None:
    """Fill a matrix: with another; with its ``lower`` part and 0; else with the identity."""
    code = w.code
    one, zero = literal(1, w.dtype), literal(0, w.dtype)

    def entry(indices: list[str]) -> None:
        i, j = indices if by_rows else reversed(indices)
        at = [*batch, i, j]
        x = w.load(source, at) if source else one
        if not source or part:
            keep = code.op(f"icmp {'uge' if part else 'eq'} i64 {i}, {j}")
            x = code.select(w.t, keep, x, zero)
        w.store(target, at, x)

    *_, n, m = target.shape
    by_rows = target.strides[-1] == 1 or m == 1
    over(w, (n, m) if by_rows else (m, n), entry)


# ---- how BLAS can read a matrix


def layout(v: View) -> tuple[str, int] | None:
    """(``N`` or ``T``, distance of its lines) of a matrix for BLAS; None: it cannot read it.

    ``N``: rows are lines of memory, so that BLAS sees the transpose.
    """
    n, k = v.shape[-2:]
    down, along = v.strides[-2:]
    if max(down, along) > LARGEST:
        return None
    if (k == 1 or along == 1) and (n == 1 or down >= k):
        return "N", max(down if n > 1 else k, k, 1)
    if (n == 1 or down == 1) and (k == 1 or along >= n):
        return "T", max(along if k > 1 else n, n, 1)
    return None


def flip(letter: str) -> str:
    return {"N": "T", "T": "N", "L": "U", "U": "L"}[letter]


def layout_of(v: View) -> tuple[str, int]:
    """The same of one that it can read."""
    how = layout(v)
    assert how is not None, v
    return how


# ---- systems


@dataclass(frozen=True, slots=True, eq=False)
class Factor(Call):
    """``a = p @ l @ u``: the factors by columns, as LAPACK has them, and the rows exchanged."""

    name: ClassVar[str] = "getrf"

    def body(self, w: Writer, indices: list[str]) -> None:
        (a,), (lu, pivots) = self.operands, self.outputs
        n = w.count(a.shape[-1])
        copy(w, a, transpose(lu), indices)
        # whoever divides by a pivot checks that it is not 0
        w.call(
            "getrf",
            n,
            n,
            w.address(lu, indices),
            n,
            f"ptr {w.at(pivots, indices, 'i64')}",
            f"ptr {w.info()}",
        )


def transpose(v: View) -> View:
    axes = tuple(range(len(v.shape)))
    return views.transpose(v, (*axes[:-2], axes[-1], axes[-2]))


@dataclass(frozen=True, slots=True, eq=False)
class Solve(Call):
    """``x`` with ``a @ x = b``, by columns, from the factors of ``a`` or of its transpose.

    Operands: factors, pivots and ``b``, which is the identity where it is left out.
    """

    flipped: bool

    name: ClassVar[str] = "getrs"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        lu, pivots, *b = self.operands
        x = self.outputs[0]
        m, n = x.shape[-2:]
        refuse_zeros(w, lu, indices)
        copy(w, b[0] if b else None, transpose(x), indices)
        together, info = 1 if n * m < ALONE else m, f"ptr {w.info()}"

        def columns(index: list[str]) -> None:
            w.call(
                "getrs",
                "T" if self.flipped else "N",
                w.count(n),
                w.count(together),
                w.address(lu, indices),
                w.count(n),
                f"ptr {w.at(pivots, indices, 'i64')}",
                w.address(x, [*indices, *index]),
                w.count(n),
                info,
            )

        over(w, (m // together,), columns)


def refuse_zeros(w: Writer, a: View, batch: list[str]) -> None:
    """Refuse a triangle with a 0 on its diagonal, which is singular."""

    def entry(indices: list[str]) -> None:
        x = w.load(a, [*batch, *indices, *indices])
        w.refuse_if(w.code.compare("eq", w.t, x, literal(0, w.dtype)), SINGULAR)

    over(w, a.shape[-1:], entry)


@dataclass(frozen=True, slots=True, eq=False)
class Triangular(Call):
    """``x`` with ``a @ x = b`` for a triangle ``a``, or its transpose."""

    lower: bool
    flipped: bool
    unit: bool

    name: ClassVar[str] = "trsm"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        a, b = self.operands
        x = self.outputs[0]
        n, m = b.shape[-2:]
        if not self.unit:
            refuse_zeros(w, a, indices)
        copy(w, b, x, indices)
        how, lead = layout_of(a)
        # where its rows are lines of memory, BLAS sees the transpose of ``a``, and of the product
        upper = self.lower == (how == "N")
        turned = "T" if self.flipped == (how == "N") else "N"
        unit = "U" if self.unit else "N"
        triangle, matrix = "U" if upper else "L", (w.address(a, indices), w.count(lead))
        if m == 1:
            w.call(
                "trsv",
                triangle,
                flip(turned),
                unit,
                w.count(n),
                *matrix,
                w.address(x, indices),
                w.count(1),
            )
        else:
            w.call(
                "trsm",
                "R",
                triangle,
                turned,
                unit,
                w.count(m),
                w.count(n),
                w.number(1),
                *matrix,
                w.address(x, indices),
                w.count(m),
            )


@dataclass(frozen=True, slots=True, eq=False)
class TriangularInverse(Call):
    """The inverse of a triangle, or of its transpose; the rest of it is 0."""

    lower: bool
    flipped: bool

    name: ClassVar[str] = "trtri"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        (a,), (x,) = self.operands, self.outputs
        n, info = w.count(x.shape[-1]), w.info()
        below = self.lower != self.flipped
        # what is filled is the part below the diagonal of the inverse, or of its transpose
        copy(w, a if self.lower else transpose(a), x if below else transpose(x), indices,
             part="lower")
        # which lies above it to LAPACK, for which lines of memory are columns
        w.call("trtri", "U" if below else "L", "N", n, w.address(x, indices), n, f"ptr {info}")
        w.refuse_unless_zero(info, SINGULAR)


@dataclass(frozen=True, slots=True, eq=False)
class Cholesky(Call):
    """``l`` with ``l @ l.T = a``, from the lower triangle; the rest of ``l`` is 0."""

    name: ClassVar[str] = "potrf"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        y = self.outputs[0]
        n, info = w.count(y.shape[-1]), w.info()
        copy(w, self.operands[0], y, indices, part="lower")
        w.call("potrf", "U", n, w.address(y, indices), n, f"ptr {info}")
        w.refuse_unless_zero(info, INDEFINITE)


@dataclass(frozen=True, slots=True, eq=False)
class Eigh(Call):
    """Eigenvalues, and eigenvectors by columns, of the triangle named; and room to work."""

    lower: bool
    vectors: bool  # whether anyone wants them

    name: ClassVar[str] = "syevd"
    refuses: ClassVar[bool] = True

    def body(self, w: Writer, indices: list[str]) -> None:
        values, vectors, room, counts = self.outputs
        n, info = w.count(vectors.shape[-1]), w.info()
        copy(w, self.operands[0], transpose(vectors), indices)
        job, triangle = "V" if self.vectors else "N", "L" if self.lower else "U"
        w.call(
            "syevd",
            job,
            triangle,
            n,
            w.address(vectors, indices),
            n,
            w.address(values, indices),
            w.address(room, ()),
            w.count(math.prod(room.shape)),
            f"ptr {w.at(counts, (), 'i64')}",
            w.count(math.prod(counts.shape)),
            f"ptr {info}",
        )
        w.refuse_unless_zero(info, UNCONVERGED)


def eigh_room(n: int) -> tuple[int, int]:
    """Numbers and integers that ``syevd`` works with."""
    return 1 + 6 * n + 2 * n * n, 3 + 5 * n


@dataclass(frozen=True, slots=True, eq=False)
class LogDet(Call):
    """Sign and logarithm of the determinant, from the factors; 0 and -inf of a singular matrix."""

    bits: int  # of a pivot

    name: ClassVar[str] = "slogdet"

    def body(self, w: Writer, indices: list[str]) -> None:
        code, t = w.code, w.t
        lu, pivots = self.operands
        at_sign, at_log = (w.at(v, indices) for v in self.outputs)
        zero, one = literal(0, w.dtype), literal(1, w.dtype)
        code.line(f"store {t} {one}, ptr {at_sign}")
        code.line(f"store {t} {zero}, ptr {at_log}")

        def entry(index: list[str]) -> None:
            (i,) = index
            x = w.load(lu, [*indices, i, i])
            kind = f"i{self.bits}"
            at = code.entry(kind, w.at(pivots, indices, "i64"), 0, (1,), index)
            row = code.op(f"load {kind}, ptr {at}")
            here = code.op(f"trunc i64 {i} to i32") if kind == "i32" else i
            stays = code.compare("eq", kind, row, code.op(f"add {kind} {here}, 1"))
            keeps = code.op(f"xor i1 {code.compare('lt', t, x, zero)}, {stays}")
            have = code.op(f"load {t}, ptr {at_sign}")
            have = code.select(t, keeps, have, code.op(f"fneg {t} {have}"))
            have = code.select(t, code.compare("eq", t, x, zero), zero, have)
            code.line(f"store {t} {have}, ptr {at_sign}")
            more = code.libm("log", t, code.call("fabs", t, x))
            total = code.op(f"fadd {t} {code.op(f'load {t}, ptr {at_log}')}, {more}")
            code.line(f"store {t} {total}, ptr {at_log}")

        over(w, lu.shape[-1:], entry)
        have = code.op(f"load {t}, ptr {at_sign}")
        code.line(f"store {t} {code.op(f'fadd {t} {have}, {zero}')}, ptr {at_sign}")  # no -0


# ---- Products of matrices and vectors as calls of BLAS, whole or a few rows at a time


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
            shown = [transpose(a), b, _apart(y, self.rows)]
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
        at_a, at_b, at_y = (
            w.address(v, [*batch, at[axes[0]], at[axes[1]]])
            for v, axes in ((a, "nk"), (b, "km"), (y, "nm"))
        )
        if self.sizes["m"] == 1:
            shape, flipped = ((k, n), "T") if how_a == "N" else ((n, k), "N")
            step = b.strides[-2] if self.sizes["k"] > 1 else 1
            w.call(
                "gemv",
                flipped,
                *shape,
                one,
                at_a,
                w.count(lead_a),
                at_b,
                w.count(step),
                beta,
                at_y,
                w.count(1),
            )
        else:
            w.call(
                "gemm",
                how_b,
                how_a,
                m,
                n,
                k,
                one,
                at_b,
                w.count(lead_b),
                at_a,
                w.count(lead_a),
                beta,
                at_y,
                w.count(self.sizes["m"]),
            )


def _apart(v: View, rows: int) -> View:
    """The whole of it for each row."""
    return views.broadcast(v, (rows, *v.shape))


def product(a: View, b: View, y: View) -> Product:
    """Of stacks of matrices; of a row and a matrix by the transposes."""
    if y.shape[-2] == 1:
        a, b, y = transpose(b), transpose(a), transpose(y)
    return Product((a, b), (y,), y.shape[:-2])
