"""A staged program as one op, and the containers that it takes and returns."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program, aval_of_atom, evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._core.bind import is_staged, may_have_nan
from functrans._core.locks import Interrupted, compiler, lazy
from functrans._core.plain import space
from functrans._core.primitive import ZeroPolicy, inside
from functrans._ops.calls import Call
from functrans._transforms.arguments import hand_out_all, hand_out_fresh
from functrans._transforms.drawing import Draw, Drawn
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.environment import Key
from functrans._transforms.staging.reads import Reads
from functrans._transforms.staging.restage import Mask
from functrans._transforms.staging.signature import integers
from functrans._transforms.vmap import Unbatched
from functrans.tree import Structure

if TYPE_CHECKING:
    from functrans._compile.run.guards import Guards
    from functrans._compile.run.native import Executable, Framed


# ---- Containers taken apart and put together by functions that know one structure
#
# ``tree.flatten`` finds out what each object is. A call that is made again and again has only to be
# compared with the structure that it had when it was staged, and its result is made by functions
# that were chosen then.

# Appends the leaves of a container to a list; whether it has the structure, keys in the same order.
Take = Callable[[Any, list], bool]
# The container, made of all leaves of a result.
Make = Callable[[Sequence], Any]


def nothing(*args: Any, **kwargs: Any) -> Any:
    """An entry that takes no arguments."""
    return NotImplemented


class OfLeaves(Protocol):
    """An entry, or a tree of paths, for arguments that are no containers."""

    reads: Any
    quick: Any
    guards: Any
    shortcut: Any

    def is_current(self) -> bool:
        """Whether what the function read when it was staged is still so."""
        raise NotImplementedError


class Nested:
    """An entry or tree for arguments in containers or by name: it is called with their leaves."""

    def __init__(self, entry: OfLeaves, structure: Structure):
        self.entry, self.native, self.call = entry, nothing, nothing
        self.take = _taken_apart(structure)

    @property
    def reads(self) -> Any:
        return self.entry.reads

    @property
    def quick(self) -> Any:
        return self.entry.quick

    @property
    def guards(self) -> Any:
        return self.entry.guards

    def is_current(self) -> bool:
        return self.entry.is_current()

    @property
    def shortcut(self) -> tuple[Callable, Callable[[tuple], Any]]:
        """As that of an entry; what the first declines goes the general way."""
        native = self.entry.shortcut[0]
        if native is not self.native:
            self.native, self.call = native, self._calling(native)
        return self.call, nothing

    def _calling(self, native: Callable) -> Callable:
        take = self.take

        def call(*args: Any, **kwargs: Any) -> Any:
            leaves = take(args, kwargs)
            return NotImplemented if leaves is None else native(*leaves)

        return nothing if native is nothing else call


def _taken_apart(structure: Structure) -> Callable[[tuple, dict], list | None]:
    """The leaves of positional and named arguments, None if they have another structure."""
    positional, named = structure.children
    takes, count = [*map(taker, positional.children)], len(positional.children)
    take_named, names = taker(named), bool(named.children)

    def take(args: tuple, kwargs: dict) -> list | None:
        leaves: list = []
        if len(args) != count:
            return None
        for t, x in zip(takes, args, strict=True):
            if not t(x, leaves):
                return None
        if (kwargs or names) and not take_named(kwargs, leaves):
            return None
        return leaves

    return take


def taker(s: Structure) -> Take:
    """What takes containers of one structure apart."""
    if s.kind is None:
        return _take_leaf
    if s.kind is tuple or s.kind is list or hasattr(s.kind, "_fields"):
        return _sequence_taker(s)
    if s.kind is dict or s.kind is OrderedDict:
        return _dict_taker(s)
    return _other_taker(s)


def _take_leaf(x: Any, leaves: list) -> bool:
    leaves.append(x)  # if it is a container, the entry declines
    return True


def _all_leaves(s: Structure) -> bool:
    return all([c.kind is None for c in s.children])


def _sequence_taker(s: Structure) -> Take:
    kind, count, takes = s.kind, len(s.children), [*map(taker, s.children)]
    flat = _all_leaves(s)

    def take(x: Any, leaves: list) -> bool:
        if type(x) is not kind or len(x) != count:
            return False
        if flat:
            leaves += x
            return True
        return all([t(y, leaves) for t, y in zip(takes, x, strict=True)])

    return take


def _dict_taker(s: Structure) -> Take:
    """Keys that are equal may be of another type (1 and True), which functions can tell apart."""
    kind, keys, order = s.kind, s.aux.canonical, s.aux.order
    types, takes = [*map(type, order)], [*map(taker, s.children)]
    flat = _all_leaves(s)

    def take(x: Any, leaves: list) -> bool:
        if type(x) is not kind or (*x,) != order or [*map(type, x)] != types:
            return False
        if flat:
            leaves += [x[k] for k in keys]
            return True
        return all([t(x[k], leaves) for t, k in zip(takes, keys, strict=True)])

    return take


def _other_taker(s: Structure) -> Take:
    kind, takes = s.kind, [*map(taker, s.children)]

    def take(x: Any, leaves: list) -> bool:
        parts = tree.opened(x) if type(x) is kind else None
        if parts is None or parts[1] != s.aux:
            return False
        children = [*parts[0]]
        return len(children) == len(takes) and all(
            [t(y, leaves) for t, y in zip(takes, children, strict=True)])

    return take


def maker(s: Structure, start: int = 0) -> Make:
    """What puts a container together, of the leaves from ``start`` on."""
    if s.kind is None:
        return itemgetter(start)
    starts = [start]
    for c in s.children:
        starts.append(starts[-1] + c.size)
    kind, count = s.kind, len(s.children)
    if (kind is tuple or kind is list) and _all_leaves(s):
        return lambda ys: kind(ys[start : start + count])
    makes = [maker(c, at) for c, at in zip(s.children, starts, strict=False)]
    if kind is dict and count:
        by_key = dict(zip(s.aux.canonical, makes, strict=True))
        ordered = [by_key[k] for k in s.aux.order]
        return lambda ys: dict(zip(s.aux.order, [m(ys) for m in ordered], strict=True))
    return lambda ys: tree.closed(s, [m(ys) for m in makes])


# ---- A staged program as one op: its native code, and the programs that transforms make of it


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
            from functrans._compile.run.native import Executable  # lazy: the whole compiler

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
            native, run = None, functools.partial(_check, self.check_integers, run)
        if structure is tree.LEAF:
            return native or nothing, lambda args: hand_out_fresh(run(args)[0])

        make = maker(structure)

        def general(args: tuple) -> Any:
            return make([*map(hand_out_fresh, run(args))])

        if native is None or not structure.size:
            return nothing, general
        if structure.size == 1:
            return _wrap(native, lambda y: make((y,))), general
        direct = structure.kind is tuple and set(structure.children) == {tree.LEAF}
        return native if direct else _wrap(native, make), general

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

    def jvp(self, mask: Mask, how: ZeroPolicy) -> tuple[Entry, list[bool]]:
        """The entry of outputs and tangents, and which outputs have one."""
        made, moves = restage.jvp(self.program, mask, self.name, how)
        return self.of("jvp", made), moves

    def vmap(self, mask: Mask, size: int) -> tuple[Entry, list[bool]]:
        """The entry for a batch of ``size``, and which outputs have an axis 0 for it."""
        nowhere = [False] * len(self.program.outputs)
        made, varies = restage.vmap(self.program, mask, size, self.name, nowhere)
        return self.of("vmap", made), varies


def _wrap(native: Callable, make: Callable[[Any], Any]) -> Callable:
    """An entry that returns what ``make`` makes of the outputs."""

    def entry(*args: Any) -> Any:
        ys = native(*args)
        return ys if ys is NotImplemented else make(ys)

    return entry


def _check(check: Callable[[Sequence], None], run: Callable, args: Sequence) -> list:
    check(args)
    return run(args)


class VJPPair:
    """A program split in two, of which the second takes what the first has kept for it."""

    def __init__(self, entry: Entry, mask: Mask, how: ZeroPolicy):
        program = entry.program
        self.strong = how is ZeroPolicy.STRONG
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
        return ys, space(ts, moves)

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
