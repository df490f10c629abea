"""A function as data: typed variables, one equation an op. Immutable; a pass returns a new one.

{ lambda a:float64[3], b:float64[]
  c:float64[3] = multiply a 2.0
  d:float64[] = sum c [axis=(0,)]       # model.py:7
  return d, b }
"""

from __future__ import annotations

import functools
import itertools
import string
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from functrans._core.array import PYTHON_SCALARS, Aval, aval_of
from functrans._core.primitive import Primitive, install
from functrans._ops.declare import TABLE, Elementwise


class Var:
    """A value that the program computes or is given. Compared by identity.

    ``weak``: a Python scalar, which NumPy promotes weakly.
    """

    __slots__ = ("aval", "weak")

    def __init__(self, aval: Aval, weak: bool = False):
        self.aval = aval
        self.weak = weak

    def __repr__(self) -> str:
        return f"Var({self.aval!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Const:
    """An array that the program holds; read-only."""

    value: np.ndarray

    @property
    def aval(self) -> Aval:
        return aval_of(self.value)


# An operand: a variable, an array that the program holds, or a Python scalar.
Atom = Var | Const | bool | int | float | complex


@dataclass(frozen=True, slots=True, eq=False)
class Eqn:
    """``outputs = prim(*inputs, **params)``; ``line`` is the user's source line that made it."""

    prim: Primitive
    inputs: tuple[Atom, ...]
    params: dict[str, Any]
    outputs: tuple[Var, ...]
    line: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Inputs, equations in order, outputs."""

    inputs: tuple[Var, ...]
    eqns: tuple[Eqn, ...]
    outputs: tuple[Atom, ...]

    def __repr__(self) -> str:
        return show(self)

    def _repr_html_(self) -> str:
        from html import escape  # lazy: seldom used

        return f"<pre>{escape(show(self))}</pre>"

    @property
    def consts(self) -> list[Const]:
        """The arrays that it holds, each once, in order of use."""
        consts = {id(a): a for a in atoms(self) if type(a) is Const}
        return list(consts.values())


def substitute(eqn: Eqn, read: Callable[[Atom], Atom]) -> Eqn:
    """The equation with each operand as ``read`` gives it; itself where that changes none.

    Index arrays are operands, and so is all that the programs of a loop or branch read from
    outside. Passes that replace variables do it here or in a ``Writer`` that reads, so that they
    leave none out.
    """
    inputs = tuple([read(a) for a in eqn.inputs])
    if all([a is b for a, b in zip(inputs, eqn.inputs, strict=True)]):
        return eqn
    return Eqn(eqn.prim, inputs, eqn.params, eqn.outputs, eqn.line)


def atoms(program: Program) -> Iterator[Atom]:
    """Every operand of every equation, and the outputs."""
    for eqn in program.eqns:
        yield from eqn.inputs
    yield from program.outputs


def aval_of_atom(a: Atom) -> Aval:
    return a.aval if isinstance(a, Var | Const) else aval_of(a)


def is_weak(a: Atom) -> bool:
    """Whether it is a Python scalar."""
    return a.weak if isinstance(a, Var) else type(a) in PYTHON_SCALARS


def check(program: Program, before: Program | None = None) -> Program:
    """The program itself, when it is well formed; run after each pass.

    Every variable is defined once, before it is used; types are those that the rows' rules give,
    and not asked for again where an equation stood in a program ``before``, which was checked.
    """
    typed = set() if before is None else set(map(id, before.eqns))
    known: set[int] = set()
    for v in program.inputs:
        assert id(v) not in known, f"input {v!r} is given twice"
        known.add(id(v))
    for eqn in program.eqns:
        for a in eqn.inputs:
            assert _skip_known(a, known), f"{eqn.prim} uses {a!r} before it is defined"
        assert len(eqn.outputs) == eqn.prim.outputs, (eqn.prim, eqn.outputs)
        if id(eqn) not in typed:
            for v, e in zip(eqn.outputs, types_of(eqn), strict=True):
                assert v.weak or v.aval == e, f"{eqn.prim}: {v.aval!r} is declared, but it is {e!r}"
        for v in eqn.outputs:
            assert id(v) not in known, f"{eqn.prim} defines {v!r} again"
            known.add(id(v))
    for a in program.outputs:
        assert _skip_known(a, known), f"output {a!r} is not defined"
    return program


def _skip_known(a: Atom, known: set[int]) -> bool:
    if type(a) is Var:
        return id(a) in known
    return type(a) is Const or type(a) in PYTHON_SCALARS


# Cached results of rows' rules: most equations of a program resemble earlier ones.
_types: dict[tuple, tuple[Aval, ...]] = {}
_MOST_TYPES = 4096


def types_of(eqn: Eqn) -> tuple[Aval, ...]:
    """The types of the outputs by the rule of the row."""
    weak = isinstance(eqn.prim, Elementwise)  # other rows do not promote
    operands = [_abstract_atom(a, weak) for a in eqn.inputs]
    params = [(k, type(v), v) for k, v in eqn.params.items()]
    key = eqn.prim, *operands, *map(type, operands), *params
    try:
        known = _types.get(key)
    except TypeError:  # a parameter that cannot be hashed
        return _types_by_rule(eqn, operands)
    if known is None:
        known = _types_by_rule(eqn, operands)
        if len(_types) >= _MOST_TYPES:
            _types.clear()
        _types[key] = known
    return known


def _types_by_rule(eqn: Eqn, operands: Sequence[Any]) -> tuple[Aval, ...]:
    with np.errstate(all="ignore"):  # Python scalars are computed with
        types = eqn.prim.abstract(*operands, **eqn.params)
    return types if eqn.prim.outputs > 1 else (types,)


def _abstract_atom(a: Atom, weak: bool) -> Atom | Aval:
    """What a row's rule is given: the type of an operand, or a Python scalar as it is."""
    if isinstance(a, Var):
        return _one(a.aval.dtype) if weak and a.weak else a.aval
    return a if weak and type(a) is not Const else aval_of_atom(a)


@functools.lru_cache(maxsize=64)
def _one(dtype: np.dtype) -> bool | int | float | complex:
    """A Python scalar of a dtype."""
    return dtype.type(1).item()


def apply(prim: Primitive, xs: Sequence[Any], params: dict[str, Any]) -> Any:
    return prim(*xs, **params)


def evaluate(program: Program, args: Sequence[Any],
             apply: Callable[[Primitive, Sequence[Any], dict[str, Any]], Any] = apply) -> list:
    """The outputs for ``args``, equation by equation; works on traced values."""
    env: dict[Var, Any] = dict(zip(program.inputs, args, strict=True))

    def read(a: Atom) -> Any:
        return env[a] if isinstance(a, Var) else a.value if isinstance(a, Const) else a

    for eqn in program.eqns:
        y = apply(eqn.prim, list(map(read, eqn.inputs)), eqn.params)
        for v, x in zip(eqn.outputs, y if eqn.prim.outputs > 1 else (y,), strict=True):
            env[v] = x.item() if v.weak and isinstance(x, np.generic | np.ndarray) else x
    return [read(a) for a in program.outputs]


Runner = Callable[[Program, Sequence[Any]], list]


def interpret(program: Program, values: Sequence[Any]) -> list[np.ndarray]:
    """The outputs for plain values, by NumPy; fresh arrays."""
    return [np.array(y) for y in evaluate(program, values)]


class Structured(Primitive):
    """A row that holds programs (``structured.py``). A call goes to the rules it was made with."""

    __slots__ = ("derived", "rules")

    def __init__(self, name: str, rules: Callable, outputs: int):
        super().__init__(name, self.run, abstract=self.types, outputs=outputs)
        self.rules = rules
        self.derived: dict[Any, Any] = {}  # programs made from it, kept with it

    def __call__(self, *args: Any, **params: Any) -> Any:
        return self.one_or_all(self.rules(self)(*args))

    def one_or_all(self, outputs: Sequence) -> Any:
        """The outputs as an op returns them: a tuple only if there are several."""
        return tuple(outputs) if self.outputs > 1 else outputs[0]

    @property
    def programs(self) -> dict[str, Program]:
        """The programs that it holds, by what they are for."""
        raise NotImplementedError

    @property
    def shown(self) -> dict[str, Program]:
        """The programs that are printed below its equation."""
        return self.programs

    def with_programs(self, change: Callable[[Program], Program]) -> Structured:
        """The same row with each of its programs changed."""
        raise NotImplementedError

    def note(self) -> str:
        """What is printed behind its name."""
        return ""

    def numbers(self) -> tuple:
        """Everything about it but its programs."""
        return ()

    def operand_types(self) -> list[Aval]:
        raise NotImplementedError

    def output_types(self) -> list[Aval]:
        """By default those of each of its programs."""
        return list(map(aval_of_atom, next(iter(self.programs.values())).outputs))

    def types(self, *xs: Aval) -> Aval | tuple[Aval, ...]:
        return self.one_or_all(self.output_types())

    def weak_outputs(self) -> list[bool]:
        """Which outputs are Python scalars: by default those that are in each program."""
        outputs = zip(*[p.outputs for p in self.programs.values()], strict=True)
        return [all(map(is_weak, atoms)) for atoms in outputs]

    def run(self, *xs: Any, run: Runner = evaluate) -> Any:
        """The outputs for plain values; ``run`` runs the programs."""
        return self.one_or_all(self.computed(xs, run))

    def computed(self, xs: Sequence[Any], run: Runner) -> Sequence:
        """A list of the same."""
        raise NotImplementedError

    def pruned(self, used: Sequence[bool]) -> tuple[Structured, list[bool], list[bool]] | None:
        """The row that computes only the outputs ``used``; which operands and outputs it has.

        None where it needs all that it has.
        """
        return None


# ---- printing


def _names() -> Iterator[str]:
    for n in itertools.count(1):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=n))


def namer() -> Callable[[Var], str]:
    """Short names for variables, in the order in which they are asked for."""
    fresh, names = _names(), {}

    def name(v: Var) -> str:
        if v not in names:
            names[v] = next(fresh)
        return names[v]

    return name


def show(program: Program, name: Callable[[Var], str] | None = None) -> str:
    """The program as text, a line an equation; below a loop or branch the programs it holds."""
    name = name or namer()

    def typed(v: Var) -> str:
        return f"{name(v)}:{'weak ' if v.weak else ''}{v.aval!r}"

    def atom(a: Atom) -> str:
        if isinstance(a, Var):
            return name(a)
        return _const(a.value) if isinstance(a, Const) else repr(a)

    lines = [f"{{ lambda {', '.join(map(typed, program.inputs))}"]
    for eqn in program.eqns:
        left = ", ".join(map(typed, eqn.outputs))
        params = " ".join(f"{k}={v!r}" for k, v in eqn.params.items())
        held = eqn.prim.shown if isinstance(eqn.prim, Structured) else {}
        params = eqn.prim.note() if isinstance(eqn.prim, Structured) else params
        text = f"  {left} = {eqn.prim} {' '.join(map(atom, eqn.inputs))}"
        text += f" [{params}]" if params else ""
        lines.append(f"{text:<60}  # {eqn.line}" if eqn.line else text)
        for label, inner in held.items():
            lines += textwrap.indent(f"{label} {show(inner, name)}", "    ").split("\n")
    lines.append(f"  return {', '.join(map(atom, program.outputs))} }}")
    return "\n".join(lines)


def _const(x: np.ndarray) -> str:
    return repr(x.item()) if x.size == 1 and x.ndim == 0 else f"<{aval_of(x)!r}>"


# ---- rows in a pickle


def row_named(name: str) -> Primitive:
    """The row of a name, for programs that are unpickled."""
    if name not in TABLE:
        raise LookupError(
            f"there is no op named {name!r}; import the module that declares it, such as "
            "functrans.scipy.special, before the program is unpickled"
        )
    return TABLE[name]


install(row_named, lambda prim: TABLE.get(prim.name) is prim)
