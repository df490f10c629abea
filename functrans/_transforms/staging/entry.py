"""A staged program as one op: its native code, and the programs that transforms make of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program, aval_of_atom, evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._core.bind import is_staged, may_have_nan
from functrans._core.locks import Interrupted, compiler, lazy
from functrans._core.places import spaced
from functrans._core.products import Products, inside
from functrans._ops.calls import Call
from functrans._transforms.arguments import hand_out_all, hand_out_fresh
from functrans._transforms.drawing import Draw, Drawn
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.containers import maker, nothing
from functrans._transforms.staging.environment import Key
from functrans._transforms.staging.integers import integers
from functrans._transforms.staging.reads import Reads
from functrans._transforms.staging.restage import Mask
from functrans._transforms.vmap import Unbatched

if TYPE_CHECKING:
    from functrans._compile.run.executable import Executable
    from functrans._compile.run.framed import Framed
    from functrans._compile.run.guards import Guards


class Entry:
    """A staged program, its native code, and the programs derived from it.

    ``derived`` are these by transform and by which operands it is for: made of the program once,
    they are called at each later derivative or batch.
    """

    def __init__(self, name: str, program: Program, structure: Any, rounding: Rounding,
                 reads: Reads | None = None):
        self.name, self.program, self.structure = name, program, structure
        self.rounding, self.reads = rounding, reads
        # where the first operands stand, which the function closes over; None: where no name leads
        self.closes_over: list[Key | None] = []
        self.draws: Sequence[Draw] = ()  # what each call draws first
        self.holders: list[Any] = []  # kept, so that no other gets the id that is in a key
        self.inputs: Sequence[str] = ()  # their names, as far as known
        self.check_integers = integers(name, program)
        self.guards: Guards | None = None  # what its C function compares of what it has read
        self.quick = None if reads is None else reads.unchanged  # what is compared before that
        self.derived: dict[Any, Any] = {}

    @property
    def once(self) -> bool:
        """Whether it serves for one call: who knows where what it closes over will be then."""
        return None in self.closes_over

    def pieces(self) -> list[Entry]:
        return [self]

    def values(self, traced: Mapping, operands: Sequence, drawn: Drawn) -> list:
        """What it is called with: what it closes over or draws, then the operands."""
        if self.draws:
            traced = {**traced, **drawn.values(enumerate(self.draws))}
        return [*[traced[key] for key in self.closes_over if key is not None], *operands]

    def is_current(self) -> bool:
        """Whether what the function read when it was staged is still so."""
        return self.reads is None or self.reads.unchanged()

    @lazy
    def executable(self) -> Executable:
        with compiler():
            from functrans._compile.run.executable import Executable  # lazy: the whole compiler

        return Executable(self.program, self.rounding, self.name, self.inputs)

    @property
    def made(self) -> str:
        """How its code was made, and in what time."""
        executable = self.__dict__.get("executable")
        return (executable and executable.made) or "not compiled yet"

    @lazy
    def discrete(self) -> bool:
        """Whether no output has a derivative."""
        return not any(restage.inexact_outputs(self.program))

    @property
    def verified(self) -> Framed | None:
        """Its native code, once a call has verified it; none where Python checks integers."""
        executable = self.__dict__.get("executable")
        return executable and executable.verified if self.check_integers is None else None

    def run(self, args: Sequence) -> list:
        try:
            run = self.executable.run
        except Interrupted:
            return [np.array(y) for y in evaluate(self.program, args)]
        return run(args)

    def checked(self, args: Sequence) -> list:
        """``run`` of plain values, Python's integers exact or refused."""
        if self.check_integers is not None:
            self.check_integers(args)
        return self.run(args)

    @lazy
    def shortcut(self) -> tuple[Callable, Callable[[tuple], Any]]:
        """From plain arguments to what the caller gets, with nothing looked up between.

        The first is called with the arguments and may return NotImplemented; the second takes all.
        Both are called right after what the function reads has been compared.
        """
        run, native, structure = self.executable.run, self.executable.entry, self.structure
        if self.reads is not None and (code := self.executable.verified) is not None:
            own = code.sharing(self.reads.checksums())
            run, native = (own, own.entry) if own is not code else (run, native)
            guards, quick = self.reads.native
            if guards is not None and native is not None and self.check_integers is None:
                native, self.guards, self.quick = own.guarded(guards), guards, quick
        if self.check_integers is not None:
            native, run = None, functools.partial(_checked, self.check_integers, run)
        if structure is tree.LEAF:
            return native or nothing, lambda args: hand_out_fresh(run(args)[0])

        make = maker(structure)

        def general(args: tuple) -> Any:
            return make([*map(hand_out_fresh, run(args))])

        if native is None or not structure.size:
            return nothing, general
        if structure.size == 1:
            return _wrapped(native, lambda y: make((y,))), general
        direct = structure.kind is tuple and set(structure.children) == {tree.LEAF}
        return native if direct else _wrapped(native, make), general

    def result(self, outs: Sequence) -> Any:
        """The outputs as the caller gets them."""
        ys = list(outs)
        del outs
        return tree.unflatten(self.structure, hand_out_all(ys))

    def derive(self, key: Any, make: Callable[[], Any]) -> Any:
        """What ``make`` returns, kept; of threads that ask at once, the first to have it."""
        if key in self.derived:
            return self.derived[key]
        return self.derived.setdefault(key, make())

    def of(self, what: str, program: Program, same: bool = True) -> Entry:
        """The entry of a program made from this one's; ``same``: its inputs are the first there."""
        made = Entry(f"{what}({self.name})", program, None, self.rounding)
        made.inputs = self.inputs if same else ()
        return made

    def jvp(self, mask: Mask, how: Products) -> tuple[Entry, list[bool]]:
        """The entry of outputs and tangents, and which outputs have one."""
        made, moves = restage.jvp(self.program, mask, self.name, how)
        return self.of("jvp", made), moves

    def vmap(self, mask: Mask, size: int) -> tuple[Entry, list[bool]]:
        """The entry for a batch of ``size``, and which outputs have an axis 0 for it."""
        nowhere = [False] * len(self.program.outputs)
        made, varies = restage.vmap(self.program, mask, size, self.name, nowhere)
        return self.of("vmap", made), varies


def _wrapped(native: Callable, make: Callable[[Any], Any]) -> Callable:
    """An entry that returns what ``make`` makes of the outputs."""

    def entry(*args: Any) -> Any:
        ys = native(*args)
        return ys if ys is NotImplemented else make(ys)

    return entry


def _checked(check: Callable[[Sequence], None], run: Callable, args: Sequence) -> list:
    check(args)
    return run(args)


class VJPPair:
    """A program split in two, of which the second takes what the first has kept for it."""

    def __init__(self, entry: Entry, mask: Mask, how: Products):
        program = entry.program
        self.strong = how is Products.STRONG
        takes = restage.reached_outputs(program, mask)
        joint = restage.vjp(program, mask, entry.name, how, takes)
        split = restage.partition(joint, len(mask), len(program.outputs), takes)
        self.forward = entry.of("forward of vjp", split.forward)
        self.backward = entry.of("backward of vjp", split.backward, same=False)
        self.reads, self.takes = split.reads, takes
        self.types = [aval_of_atom(a) for a in program.outputs]


class JitCall(Call):
    """A compiled function as one op."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry):
        super().__init__(entry.name, lambda *xs: tuple(evaluate(entry.program, xs)))
        self.entry = entry

    def plain(self, *operands: Any) -> tuple:
        return tuple(self.entry.run(operands))

    def jvp(self, trace: Any, primals: Sequence, tangents: Sequence) -> tuple[Sequence, Sequence]:
        mask = tuple(t is not None for t in tangents)
        operands = [*primals, *[t for t in tangents if t is not None]]
        for strong in (False, True):
            how = inside(strong, operands)
            key = "jvp", mask, how
            entry, moves = self.entry.derive(key, lambda how=how: self.entry.jvp(mask, how))
            flat = JitCall(entry)(*operands)
            ys, ts = flat[: len(moves)], flat[len(moves) :]
            if any(map(is_staged, flat)) or not any(map(may_have_nan, ts)):
                break
        return ys, spaced(ts, moves)

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        if self.entry.discrete:
            return tuple(map(trace.lower, JitCall(self.entry)(*trace.operands(args)[0])))
        primals, parents = trace.operands([*map(trace.capture, args)])
        mask = tuple(p is not None for p in parents)
        how = inside(trace.strong, primals)
        pair = self.entry.derive(("vjp", mask, how), lambda: VJPPair(self.entry, mask, how))
        flat = JitCall(pair.forward)(*primals)
        n = len(self.entry.program.outputs)
        node = Residuals(self, pair, primals, parents, flat[n:], n)
        return recorded(trace, node, flat[:n], pair.takes)

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        mask, size = tuple(batched), trace.batch_size
        key = ("vmap", mask, size)
        entry, varies = self.entry.derive(key, lambda: self.entry.vmap(mask, size))
        pairs = zip(JitCall(entry)(*xs), varies, strict=True)
        return [y if v else Unbatched(y) for y, v in pairs]

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.fun(*args)


class Residuals(restage.ProgramNode):
    """What a compiled forward program has kept for the backward one."""

    __slots__ = ()

    def pull(self, cts: Sequence) -> Sequence:
        read = [self.primals[i] for i in self.pair.reads]
        backward = JitCall(self.pair.backward)
        return self.spread(backward(*read, *self.residuals, *self.seeds(cts)))
