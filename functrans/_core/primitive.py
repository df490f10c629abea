"""``Primitive``: a row of the table, and where the derivatives in a program have strong zero."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import numpy as np

from functrans._core.array import Aval
from functrans._core.bind import bind, is_staged

# ---- ``Primitive``: a row of the table. The four families in ``_ops/declare.py`` derive its rules

# The output's dtype; the operand's; the operand's where that is inexact, else float64; one that all
# operands have in common; bool; or, of ``where``, bool for the first and the output's for the rest.
Computes = Literal["output", "operand", "inexact", "common", "bool", "choice"]
# Not at all, to the nearest number, or depending on the implementation.
Rounds = Literal["never", "once", "freely"]
# Arithmetic operations that take as long as a mathematical function of one number.
FUNCTION = 16.0


class Facts(NamedTuple):
    """Properties of an op; what follows from them is up to those who use them."""

    commutes: bool = False  # operands may change places: same bits, but perhaps another NaN
    rounds: Rounds = "freely"  # how its result differs from the exact one
    unique: bool = True  # there is one right result; not for eigenvectors, whose signs are free
    moves: bool = False  # its result is its operand in another shape
    cost: float = FUNCTION  # arithmetic operations for an entry
    computes: Computes = "output"  # what its operands are converted to
    libm: str = ""  # the function of C's mathematics library that it is
    cython: str = ""  # the function of ``scipy.special.cython_special`` that it is
    formula: Callable | None = None  # the same of other rows, for native code
    intrinsic: str = ""  # the instruction that it is, as LLVM calls it
    reduces: Primitive | None = None  # the row that joins two entries along the axes
    scans: Primitive | None = None  # the same, where all results on the way are kept
    neutral: Callable[[np.dtype], Any] | None = None  # what a reduction of nothing is
    indexing: str = ""  # "reads", "sets" or "adds" entries by index
    flops: Callable[[Sequence[tuple], dict], int] | None = None  # of operands of these shapes
    # the size, as ``_kernels/sizes`` calls it, from which native code pays on plain arrays
    native_from: str = ""
    jumps: str = ""  # where its value jumps; unlike at kinks, the derivative there is clear
    at_jump: Callable | None = None  # where ndarray operands are so, as booleans
    example: Callable | None = None  # a result to write programs with, where a run may take long
    prints: bool = False  # it gives its operand back and prints it, once for each run

    @property
    def cheap(self) -> bool:
        """Whether it is an instruction or a few: it calls no function and does not divide."""
        return self.cost <= 3


NO_FACTS = Facts()


class Primitive:
    """An operation that every transform knows how to handle. A call binds it.

    A family fills in the methods below from what the row declares. In all of them ``xs`` are the
    operands (values that a rule did not ask to be saved are given as ``Aval``), ``ts`` and ``ct``
    tangents and cotangent, None where absent, and ``params`` the static parameters.
    """

    # of elementwise and bilinear rows, an action for each operand
    actions: tuple[Any, ...]
    # of elementwise rows, what makes their entry on a tape (``_ops/declare.py``)
    entry: Callable[..., tuple]

    __slots__ = ("abstract", "at_kink", "differentiable", "doc", "domain", "facts", "impl",
                 "kinks", "name", "ours", "outputs")

    def __init__(
        self,
        name: str,
        impl: Callable,
        *,
        abstract: Callable | None = None,
        domain: str = "",
        kinks: str = "",
        at_kink: Callable | None = None,
        doc: str = "",
        outputs: int = 1,
        differentiable: bool = True,
        **facts: Any,
    ):
        unknown = facts.keys() - set(Facts._fields)
        if unknown:
            raise TypeError(f"op {name!r}: rows have no column {', '.join(sorted(unknown))}")
        self.name = name
        self.impl = impl
        self.abstract = abstract or self.default_abstract
        self.domain = domain
        self.kinks = kinks
        # where ndarray operands are at a kink, as booleans: read only while kinks are watched
        self.at_kink = at_kink
        self.doc = doc
        self.outputs = outputs
        self.differentiable = differentiable
        self.facts = Facts(**facts) if facts else NO_FACTS
        # whether the package declares it: such rows have native code, and names that keys can use
        self.ours = False

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple | str:
        """A row of the table pickles by its name."""
        return (_row, (self.name,)) if _is_row(self) else object.__reduce_ex__(self, 2)

    def __call__(self, *args: Any, **params: Any) -> Any:
        return bind(self, *args, **params)

    def default_abstract(self, *xs: Aval, **params: Any) -> Any:
        """Shapes and dtypes of the outputs from those of the operands."""
        raise NotImplementedError(self.name)

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        """Whether the backward rule needs the output, and which operands, by value."""
        raise NotImplementedError

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict) -> Any:
        """The output's tangent (a tuple of them where there are several outputs)."""
        raise NotImplementedError

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> Sequence:
        """One cotangent an operand, None where it is not wanted or exactly zero."""
        raise NotImplementedError

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> Any:
        """The output with a new axis 0, given that operands with ``batched`` have one."""
        raise NotImplementedError


def _row(name: str, /) -> Primitive:
    raise NotImplementedError  # replaced by functrans._compile, the floor where programs live


def _is_row(prim: Primitive, /) -> bool:
    raise NotImplementedError  # replaced by functrans._compile, the floor where programs live


def install(row: Callable[[str], Primitive], is_row: Callable[[Primitive], bool]) -> None:
    """Called once by ``_compile.ir.program``: the rows of the table, by name."""
    global _row, _is_row
    _row, _is_row = row, is_row


# ---- When the derivatives in a program have strong zero: the bare formulas run first, as eagerly
#
# ``_ops/declare.py`` says what strong zero is. A zero times an infinity is a NaN, and a NaN does
# not vanish by itself, so what a derivative hands out shows whether it was needed. Eagerly a walk
# looks there. A program is written before there are values: what its derivatives hand out goes
# through the row ``checked`` (``_ops/calls.py``), and code that meets a NaN there gives up. The
# function is then staged once more, with strong zero in every product, and that program serves from
# then on.


class NanArrived(BaseException):
    """A program met a NaN in a derivative. Not an Exception, which a user's function may catch."""


class ZeroPolicy(enum.Enum):
    """How the products in the derivatives of a program are formed."""

    BY_ROW = "with strong zero where rows say that a zero may meet an infinity"
    BARE = "bare: who runs the program looks for a NaN in what it returns"
    CHECKED = "bare, and what is handed out is checked"
    STRONG = "with strong zero"

    @property
    def bare(self) -> bool:
        return self in (ZeroPolicy.BARE, ZeroPolicy.CHECKED)


_products: ContextVar[ZeroPolicy] = ContextVar("products", default=ZeroPolicy.BY_ROW)
products = _products.get


@contextmanager
def forming(how: ZeroPolicy) -> Iterator[None]:
    """While a program is written: its products are formed so."""
    before = _products.get()
    try:
        _products.set(how)
        yield
    finally:
        _products.set(before)


def inside(strong: bool, operands: Sequence) -> ZeroPolicy:
    """How the derivative of a program that is called is written: the caller looks at the end."""
    how = products()
    if strong or how is ZeroPolicy.STRONG:
        return ZeroPolicy.STRONG
    return ZeroPolicy.BARE if how.bare or not any(map(is_staged, operands)) else how
