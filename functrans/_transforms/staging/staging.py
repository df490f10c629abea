"""Staging: a value becomes a variable of a program that is being written.

A staged value also carries what it was in the example run that writes the program: shapes and
dtypes are those of the example, and so are values that are constants of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._compile.ir.program import (
    Atom,
    Const,
    Eqn,
    Program,
    Structured,
    Var,
    atoms,
    check,
)
from functrans._compile.run.checksum import content
from functrans._core import remedies, scipy_names
from functrans._core.array import (
    PYTHON_SCALARS,
    Aval,
    aval_of,
    changeable,
    dtype_of,
    in_native_order,
    plain,
    unrepeat,
)
from functrans._core.bind import Outputs, PrimalTracer, Trace, Tracer, bind, writer
from functrans._core.primitive import NanArrived, Primitive, ZeroPolicy, forming, products
from functrans._core.writing import current
from functrans._kernels.large import Examples
from functrans._ops.structure import broadcast_to
from functrans._transforms.arguments import require_numbers
from functrans._transforms.drawing import Draw, drawing
from functrans.errors import (
    ConcretizationError,
    SolverError,
    UnsupportedError,
    user_line,
)

# Whether a program is being written in this context.
_writing: ContextVar[bool] = ContextVar("writing", default=False)
writing = _writing.get

# Entries from which on a constant is looked at: whether it is one number throughout.
REPEATED = 1024


class StagedTracer(Tracer):
    __slots__ = ("example", "sqrt_operand", "variable")

    staged = True

    def __init__(self, trace: StagingTrace, var: Var, example: Any):
        self.owner = trace
        self.sqrt_operand = None
        self.variable = var
        self.example = example

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.variable.aval.dtype

    @property
    def weak(self) -> bool:
        """Whether it stands for a number of Python's, which NumPy promotes weakly."""
        return self.variable.weak

    def made_by(self) -> Primitive | None:
        owner: Any = self.owner  # a StagingTrace
        eqn = owner.definition(self.variable)
        return None if eqn is None else eqn.prim

    def concrete_value(self) -> None:
        return None

    def is_finite(self) -> bool:
        return False  # not known: it depends on the values that the program will run on

    def is_differentiated(self) -> bool:
        return False

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        try:
            return super().__array__(dtype, copy)
        except ConcretizationError as error:
            owner: Any = self.owner  # a StagingTrace
            raise owner.lacks(error) if self.dtype.kind in "iub" else error from None

    def __float__(self) -> float:
        if scipy_names.advice(self) or remedies.formats_text():
            return super().__float__()
        return self.concretize(float, "float()")

    def __complex__(self) -> complex:
        return self.concretize(complex, "complex()")

    def _concretize(self, convert: Callable[[Any], Any], use: str) -> Any:
        owner: Any = self.owner  # a StagingTrace
        return owner.concretize(self, convert, use)


class StagingTrace(Trace):
    """Values of older traces become inputs, listed in ``lifted``; without it they are refused."""

    __slots__ = ("assumed", "consts", "defined", "eqns", "lifted", "lines", "numbered", "products")

    def __init__(self, fun: str, lines: bool = True, lifted: dict | None = None,
                 products: ZeroPolicy = ZeroPolicy.BY_ROW):
        super().__init__(fun)
        self.products = products
        self.suspend()
        self.lifted = lifted
        self.eqns: list[Eqn] = []
        self.consts: dict[int, tuple[Any, Any, Atom]] = {}
        self.lines = lines
        self.defined: dict[Var, int] = {}  # by which equation, for the first ``numbered`` of them
        self.numbered = 0
        # what is true if Python asks, for the function is then called that has the program raise
        # where it is not
        self.assumed: dict[Var, Callable[[], None]] = {}

    def definition(self, v: Var) -> Eqn | None:
        """The equation that defines a variable, None if it is an input."""
        i = self.defined_by(v)
        return None if i is None else self.eqns[i]

    def defined_by(self, v: Var) -> int | None:
        """The place of that equation."""
        for i in range(self.numbered, len(self.eqns)):
            self.defined.update(dict.fromkeys(self.eqns[i].outputs, i))
        self.numbered = len(self.eqns)
        return self.defined.get(v)

    def input(self, example: Any) -> StagedTracer:
        example = in_native_order(example)
        weak = type(example) in PYTHON_SCALARS
        return StagedTracer(self, Var(aval_of(example), weak), example)

    def atom(self, x: Any) -> Atom:
        """``x`` as an operand of an equation."""
        if isinstance(x, StagedTracer) and x.owner is self:
            return x.variable
        if isinstance(x, bool | int | float | complex) and type(x) in PYTHON_SCALARS:
            return x
        if isinstance(x, Tracer):
            return self.lift(x)
        now = content(unrepeat(x)) if isinstance(x, np.ndarray) and changeable(x) else None
        _, before, atom = self.consts.get(id(x), (x, None, None))
        if atom is None or now != before:
            atom = self.constant(plain(x))
            self.consts[id(x)] = x, now, atom  # x is kept: its id is the key
        return atom

    def constant(self, x: Any) -> Atom:
        """An array as a constant, the program's own, for its owner may change it later.

        One that repeats its entries is stored without repeats, and an equation broadcasts it.
        """
        shape, part = np.shape(x), _distinct(x) if isinstance(x, np.ndarray) else x
        value = np.array(in_native_order(part))
        value.setflags(write=False)
        if part is x:
            return Const(value)
        spread = Var(Aval(shape, value.dtype))
        self.eqns.append(Eqn(broadcast_to, (Const(value),), {"shape": shape}, (spread,)))
        return spread

    def lift(self, x: Tracer) -> Var:
        """The input that stands for a value of an older trace."""
        if self.lifted is None:
            raise UnsupportedError(
                f"{self.fun} closes over {x!r}: a program of its own cannot. Pass that value as an "
                "argument."
            )
        return self.operand(x).variable

    def operand(self, x: Tracer) -> StagedTracer:
        """What stands for a value of an older trace."""
        assert self.lifted is not None
        if id(x) not in self.lifted:
            self.lifted[id(x)] = x, self.input(example_of(x))
        return self.lifted[id(x)][1]

    def arguments(self, args: Sequence[Any]) -> list[StagedTracer]:
        """What the function that is staged is given."""
        return [self.input(x) for x in args]

    def concretize(self, x: StagedTracer, convert: Callable[[Any], Any], use: str) -> Any:
        """What Python decides by ``x``: nothing here, where one program is for all values, but what
        is assumed.
        """
        if convert is bool and x.variable in self.assumed:
            self.assumed[x.variable]()
            return True
        raise ConcretizationError(
            f"{user_line()}: {use} of {x!r} would fix what depends on the values that the "
            "compiled function is given. Use np.where(condition, a, b), or ft.cond instead of "
            "`if`; mark arguments that choose the code with static_argnums."
        )

    def lacks(self, error: ConcretizationError) -> Exception:
        """What is raised where Python needs numbers that are not known."""
        return error

    def enter(self, prim: Structured, args: tuple) -> tuple:
        """The outputs of an equation that holds programs; none of its values is known."""
        self.require_open(prim)
        inputs = tuple([self.atom(x) for x in args])
        types = prim.abstract(*[aval_of(x) for x in args])
        avals = types if prim.outputs > 1 else (types,)
        outs = [
            self.input(a.dtype.type(1).item() if w else np.broadcast_to(a.dtype.type(1), a.shape))
            for a, w in zip(avals, prim.weak_outputs(), strict=True)
        ]
        line = user_line() if self.lines else ""
        self.eqns.append(Eqn(prim, inputs, {}, tuple(t.variable for t in outs), line))
        return tuple(outs)

    def draw(self, d: Draw, outside: Callable[[Draw], Any]) -> Any:
        """Random numbers: not here, where one program is for all passes of a loop."""
        raise UnsupportedError(
            f"{user_line()}: `{d.name}` of a generator draws in {self.fun}, which is staged once "
            "and run many times, with the same numbers. Draw before it, and pass the numbers as "
            "an argument; or pass a key, from which functrans.random.normal(key) draws."
        )

    def rehearse(self, kept: bool) -> Callable[[], None] | None:
        return None  # nothing is drawn here

    def call(self, call: Any, args: tuple) -> tuple:
        return call.staged(self, args)

    def process(self, prim: Primitive, args: tuple, params: dict) -> Outputs:
        self.require_open(prim)
        dtype = params.get("dtype")
        if isinstance(dtype, np.dtype) and not dtype.isnative:  # programs have one byte order
            params = {**params, "dtype": dtype.newbyteorder("=")}
        inputs = tuple([self.atom(x) for x in args])
        examples = [example_of(x) if isinstance(x, Tracer) else x for x in args]
        y = _example(prim, examples, params)
        ys = y if prim.outputs > 1 else (y,)
        if len(args) == 2 and all(type(x) in PYTHON_SCALARS for x in examples):
            ys = (y.item(),) if isinstance(y, np.generic) else ys  # as bind_operands: stays weak
        outputs = [self.input(v) for v in ys]
        line = user_line() if self.lines else ""
        self.eqns.append(Eqn(prim, inputs, params, tuple(t.variable for t in outputs), line))
        return tuple(outputs) if prim.outputs > 1 else outputs[0]


def _distinct(x: np.ndarray) -> np.ndarray:
    """What broadcasting repeats to ``x``: of length 1 along axes that repeat; itself if none does.
    """
    if x.size < REPEATED:
        return x
    if 0 in x.strides:
        return x[tuple([slice(None, None if s else 1) for s in x.strides])]
    if x.dtype.kind not in "fiub":
        return x
    first = x.reshape(-1)[:1] if x.flags.c_contiguous else x.ravel()[:1]
    if _repeats(x, first):
        return first.reshape((1,) * x.ndim)
    row = x[:1]  # of a table whose rows are all alike
    return row if x.ndim > 1 and len(x) > 1 and _repeats(x[1:2], row) and _repeats(x, row) else x


def _repeats(x: np.ndarray, part: np.ndarray) -> bool:
    """Whether ``x`` is ``part`` throughout, to the sign of zeros."""
    zeros_alike = x.dtype.kind != "f" or (np.signbit(x) == np.signbit(part)).all()
    return bool(zeros_alike and (x == part).all())


def innermost(x: Any) -> Any:
    """The value inside all derivatives around ``x``, or what it is a name for."""
    x = current(x)
    while isinstance(x, PrimalTracer):
        x = x.primal
    return x


def example_of(x: Any) -> Any:
    """A plain value of the kind of ``x``: the one it had in the example run, where there is one."""
    inner = innermost(x)
    if not isinstance(inner, Tracer):
        return in_native_order(inner)
    if isinstance(inner, StagedTracer):
        return inner.example
    return np.broadcast_to(inner.dtype.type(1), inner.shape)


# Entries up to which an example is computed: of larger arrays no value decides anything.
EXAMPLE = 1 << 16


def _example(prim: Primitive, examples: Sequence, params: dict) -> Any:
    """What ``prim`` gives on the examples; where that is large or fails, only its type."""
    large = prim.facts.indexing and math.prod(params.get("shape", ())) > EXAMPLE
    if large or any(isinstance(x, np.ndarray) and x.size > EXAMPLE for x in examples):
        return _stand_in(prim, examples, params)
    with np.errstate(all="ignore"), Examples():
        try:
            if prim.facts.example:
                return prim.facts.example(*examples, **params)
            return bind(prim, *examples, **params)
        except (np.linalg.LinAlgError, IndexError, SolverError, NanArrived):
            # the example is singular, out of bounds or unsolved, which real arguments need not be
            return _stand_in(prim, examples, params)
        except (ValueError, ZeroDivisionError):  # as of integers to a negative power
            if any([dtype_of(x).kind in "fc" for x in examples]):
                raise
            ones = [type(x)(1) if type(x) in PYTHON_SCALARS else x for x in examples]
            return _stand_in(prim, ones, params)


def _stand_in(prim: Primitive, examples: Sequence, params: dict) -> Any:
    """Ones of the shapes and dtypes that the row's rule gives, in the memory of one number."""
    operands = [x if type(x) in PYTHON_SCALARS else aval_of(x) for x in examples]
    avals = prim.abstract(*operands, **params)
    ones = [
        np.broadcast_to(a.dtype.type(1), a.shape) for a in (avals if prim.outputs > 1 else [avals])
    ]
    return tuple(ones) if prim.outputs > 1 else ones[0]


def stage(
    f: Callable, args: Sequence[Any], name: str, how: ZeroPolicy = ZeroPolicy.BY_ROW
) -> tuple[Program, tree.Structure]:
    """The program of ``f`` on flat ``args``, and how the outputs nest."""
    trace = StagingTrace(name, products=how)
    program, structure = write(trace, f, args)
    return check(program), structure


def write(
    trace: StagingTrace, f: Callable, args: Sequence[Any]
) -> tuple[Program, tree.Structure]:
    """The program that a trace writes, and how its outputs nest."""
    before = _writing.get()
    try:
        _writing.set(True)
        inputs = trace.arguments(args)
        with forming(trace.products):
            outs, structure = tree.flatten(drawing(trace, lambda: f(*inputs)))
        require_numbers(trace.fun, outs, ended=writer.get() is trace)
        outputs = tuple([trace.atom(plain(x)) for x in outs])
        return Program(tuple(t.variable for t in inputs), tuple(trace.eqns), outputs), structure
    finally:
        trace.closed = True
        _writing.set(before)


class StagedFunction(NamedTuple):
    """A function as a program, how its outputs nest, and the values of older traces in it.

    ``lifted`` are pairs of such a value and the variable that stands for it.
    """

    program: Program
    structure: tree.Structure
    lifted: list[tuple[Any, Var]]


def stage_part(
    f: Callable, args: Sequence[Any], name: str, older: bool = False, how: ZeroPolicy | None = None
) -> StagedFunction:
    """A part of a function that is being transformed or staged: it may close over traced values.

    They are not inputs of the program yet: ``with_consts`` makes them its first ones. ``older``: it
    takes the ops on them too, if their traces have lent them or have ended, so that the program
    depends on the values themselves, not on what is made of them meanwhile.
    """
    lifted: dict[int, tuple[Any, StagedTracer]] = {}
    trace = StagingTrace(name, lifted=lifted, products=how or products())
    before = writer.get()
    try:
        writer.set(trace if older else before)
        program, structure = write(trace, f, args)
    finally:
        writer.set(before)
    return StagedFunction(program, structure, used_of(lifted, program))


def used_of(lifted: dict[int, tuple[Any, StagedTracer]], program: Program) -> list:
    """The values of older traces that a program uses, each with its variable."""
    used = {a for a in atoms(program) if isinstance(a, Var)}
    return [(x, t.variable) for x, t in lifted.values() if t.variable in used]


def with_consts(parts: Sequence[StagedFunction]) -> tuple[list, list[Program]]:
    """What the parts close over, each value once, and their programs with it as first inputs."""
    values = {id(x): x for part in parts for x, _ in part.lifted}
    programs = []
    for part in parts:
        own = {id(x): v for x, v in part.lifted}
        first = []
        for key, x in values.items():
            v = own.get(key)
            if v is None:
                example = example_of(x)
                v = Var(aval_of(example), type(example) in PYTHON_SCALARS)
            first.append(v)
        p = part.program
        programs.append(check(Program((*first, *p.inputs), p.eqns, p.outputs)))
    return list(values.values()), programs
