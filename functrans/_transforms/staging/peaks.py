"""How many bytes a call is expected to take at most, beside its arguments, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from functrans._compile.ir.columns import inline
from functrans._compile.ir.program import Atom, Eqn, Program, Structured, Var, aval_of_atom
from functrans._compile.run.frame import Frame, Segment
from functrans._compile.schedule.schedule import values_alone
from functrans._transforms.reach import make_program

if TYPE_CHECKING:
    from functrans._compile.run.native import Executable


def of_call(f: Callable, args: tuple, kwargs: dict) -> int:
    """Bytes that NumPy takes for ``f`` op by op: its program is written, and nothing is run."""
    return of_program(inline(make_program(f)(*args, **kwargs)))


def of_program(program: Program) -> int:
    """Bytes of the values that are alive at once, each until its last use, at most.

    Views take nothing and keep alive what they are views of. A value stays for one op more than it
    is read, since Python has it under a name until then. What an op takes while it runs is not
    known and not counted.
    """
    owners: dict[Var, Var] = {}  # of variables that are views
    for eqn in program.eqns:
        if _is_view(eqn) and isinstance(x := eqn.inputs[0], Var):
            owners[eqn.outputs[0]] = owners.get(x, x)

    def owner(a: Atom) -> Any:
        return owners.get(a, a) if isinstance(a, Var) else None

    last: dict[Any, int] = {}
    for i, eqn in enumerate(program.eqns):
        last.update(dict.fromkeys(map(owner, (*eqn.inputs, *eqn.outputs)), i + 1))
    last.update(dict.fromkeys(map(owner, program.outputs), len(program.eqns)))
    ends: dict[int, list] = {}
    for v, i in last.items():
        ends.setdefault(i, []).append(v)
    sizes: dict[Any, int] = {}
    now = most = 0
    for i, eqn in enumerate(program.eqns):
        for v in eqn.outputs:
            if v not in owners:
                sizes[v] = v.aval.nbytes
                now += sizes[v]
        most = max(most, now + _inside(eqn))
        now -= sum([sizes.get(v, 0) for v in ends.get(i, ())])
    return most


def _is_view(eqn: Eqn) -> bool:
    basic = eqn.prim.facts.indexing == "reads" and len(eqn.inputs) == 1
    return eqn.prim.facts.moves or basic


def _inside(eqn: Eqn) -> int:
    """What the programs of a loop or a branch take, a step or the largest branch."""
    if not isinstance(eqn.prim, Structured):
        return 0
    return max(map(of_program, eqn.prim.programs.values()), default=0)


def of_frame(frame: Frame) -> int | None:
    """Bytes that a call of compiled code allocates; None where a step is left to NumPy, of whose
    results the frame has no shapes."""
    sizes: dict[int, int] = {}
    now = most = 0
    for run in frame.runs:
        if not isinstance(run, Segment):
            return None
        for slot, shape, dtype in run.makes:
            sizes[slot] = prod(shape) * dtype.itemsize
            now += sizes[slot]
        most = max(most, now)
        now -= sum([sizes.pop(slot, 0) for slot in run.drops])
    copied = [prod(y.shape) * y.dtype.itemsize for y in frame.results if y.copied]
    return max(most, now + sum(copied))


def of_interpreted(program: Program) -> int:
    """Bytes of all values, which ``interpret`` keeps until its end, and of copies of the outputs.
    """
    made = [v for eqn in program.eqns if not _is_view(eqn) for v in eqn.outputs]
    inside = max(map(_inside, program.eqns), default=0)
    return sum([aval_of_atom(v).nbytes for v in (*made, *program.outputs)]) + inside


def of_executable(executable: Executable) -> int:
    """Bytes that a call of compiled code takes."""
    code: Any = executable.code  # an exception where there is none
    known = None if isinstance(code, Exception) else of_frame(code.frame)
    return of_program(values_alone(executable.program)) if known is None else known
