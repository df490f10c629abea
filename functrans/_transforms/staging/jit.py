"""``jit``: a function staged once for each kind of arguments, and run as one native function.

A compiled function is a ``Call``: under another transform it stays compiled. Its derivative
programs are made by running that transform on its program while staging, once, and kept with it.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program, aval_of_atom, evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._core.array import Array
from functrans._core.bind import Tracer
from functrans._core.locks import Interrupted, Lock, compiler, lazy
from functrans._inspect.lowered import Lowered
from functrans._ops.calls import Call
from functrans._transforms.arguments import (
    describe,
    hand_out_all,
    hand_out_fresh,
    hand_out_tree,
)
from functrans._transforms.reverse.grad import require_callable
from functrans._transforms.reverse.nodes import recorded
from functrans._transforms.reverse.vjp import VJPTrace
from functrans._transforms.staging import restage
from functrans._transforms.staging.compiled import Compiled
from functrans._transforms.staging.draws import Draws
from functrans._transforms.staging.environment import Environment, Key
from functrans._transforms.staging.integers import integers
from functrans._transforms.staging.reads import Reads, checks, unchanged_since
from functrans._transforms.staging.restage import Mask
from functrans._transforms.staging.signature import BoundCall, Signature
from functrans._transforms.staging.staging import stage_part, with_consts
from functrans.config import settings
from functrans.errors import ArgumentError, ConcretizationError, name_of, user_line

if TYPE_CHECKING:
    from functrans._compile.run.executable import Executable

P = ParamSpec("P")
R = TypeVar("R")

# Kinds of arguments that one function keeps programs for; the one staged first goes first.
KEPT = 128
# Times that a function is compiled anew, since what it reads has changed, until a warning is given.
MANY = 4


@overload
def jit(
    f: Callable[P, R], *, static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ..., precise: bool = ..., contract: bool = ...,
) -> Compiled[P, R]: ...


@overload
def jit(
    f: None = None, *, static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ..., precise: bool = ..., contract: bool = ...,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...


def jit(
    f: Callable | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    precise: bool = False,
    contract: bool = False,
) -> Any:  # as the overloads say
    """``f`` compiled: staged once for each kind of arguments, then run without its Python.

    The kind is the structure of the arguments, their shapes and dtypes, and the values of static
    arguments and of leaves that are not numbers. Python ``if`` and ``while`` on values raise: their
    branch would be fixed. Closures, globals, attributes and arrays that the function reads are
    compared at each call, and if they have changed it is staged again. Side effects happen once,
    when the function is staged; drawing random numbers is refused. ``precise`` takes
    scalar mathematical functions of the C library instead of vector ones, which are within 4 ulp.
    ``contract`` lets a product and a sum become one instruction that rounds once: faster by up to a
    third where sums of products are all there is, and no longer what NumPy computes.

    Inside and outside every other transform; ``jit(f).lower(*args)`` shows what is run.

    >>> import functrans as ft, numpy as np
    >>> ft.jit(ft.grad(lambda x: np.sum(np.sin(x))))(np.array([0.0, np.pi]))
    Array([ 1., -1.])
    """
    if f is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, precise=precise,
            contract=contract,
        )
    require_callable("jit", f)  # followed where it is staged: what it reads is looked up in itself
    compiled = Jitted(f, static_argnums, static_argnames, Rounding(precise, contract))

    @functools.wraps(f, updated=())
    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not settings().compiles:
            return compiled(args, kwargs)
        unchanged, entry = compiled.latest
        if unchanged is None or unchanged():
            y = entry(*args)
            if y is not NotImplemented:
                return y
        return compiled.positional(args)

    called.lower = compiled.lower  # type: ignore[attr-defined]  # part of what jit returns
    called.clear_cache = compiled.clear  # type: ignore[attr-defined]  # likewise
    for name, of in (("numba", "for_numba"), ("ctypes", "for_c"),
                     ("low_level_callable", "for_scipy")):
        setattr(called, name, functools.partial(compiled.exported, of))
    return called


# What programs do not depend on but by shape, dtype and type.
_ARRAYS = frozenset({np.ndarray, Array, np.float64})
_PLAIN = _ARRAYS | {float, int}


def _kinds(args: tuple) -> tuple:
    """Shapes and dtypes of arrays, types of everything else."""
    return tuple([(x.shape, x.dtype) if type(x) in _ARRAYS else type(x) for x in args])


def _nothing(*args: Any) -> Any:
    """An entry that takes no arguments."""
    return NotImplemented


Latest = tuple[Callable[[], bool] | None, Callable]
_NOTHING: Latest = None, _nothing


class Jitted:
    """A function and the programs that were staged of it.

    Programs are in ``entries``. Two caches stand before it, each for calls that the one behind it
    takes too long for. ``latest`` is the C function that took the last call, which looks at types,
    dtypes and shapes itself, 0.22 us a call of a small program, and before it what tells whether
    all that the program read is as it was, None if it read nothing. ``shortcuts`` is asked where it
    declines, by the kinds of plain positional arguments alone: 0.9 us for a function whose kinds
    take turns, or whose program has no C function. Everything else takes the general way, with the
    signature and all that the function closes over: 11 us. Both forget all when a program goes.
    """

    __slots__ = ("changes", "entries", "f", "latest", "lock", "rounding", "shortcuts", "signature")

    def __init__(self, f: Callable, nums: Any, names: Any, rounding: Rounding):
        self.f, self.signature, self.rounding = f, Signature(f, nums, names), rounding
        self.entries: OrderedDict[Any, Entry | None] = OrderedDict()
        self.shortcuts: dict[tuple, Entry] = {}
        self.latest: Latest = _NOTHING
        self.lock = Lock()
        self.changes = 0  # programs that were staged anew, since what they read had changed

    def positional(self, args: tuple) -> Any:
        """The call, for arguments that the latest entry has not taken."""
        found = self.shortcuts.get(_kinds(args))
        if found is None or not found.is_current():
            return self(args, {})
        try:
            entry, run = found.shortcut
        except Interrupted:
            return self(args, {})
        if entry is not self.latest[1]:
            self.latest = found.reads and found.reads.unchanged, entry
            y = entry(*args)
            if y is not NotImplemented:
                return y
        return run(args)

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        if not settings().compiles:
            return hand_out_tree(self.signature.called(*args, **kwargs))
        given = self.signature.of(args, kwargs)
        entry, operands = self._entry(given)
        if entry is None:
            return hand_out_tree(self.signature.called(*args, **kwargs))
        if entry.once:
            return entry.result(evaluate(entry.program, operands))
        if entry.check_integers is not None:
            entry.check_integers(operands)
        y = entry.result(JitCall(entry)(*operands))
        # fresh code is verified by now: the shorter way does not ask
        fixed = kwargs or self.signature.nums or entry.closes_over
        if not fixed and _PLAIN.issuperset(map(type, args)):
            self.shortcuts[_kinds(args)] = entry
        return y

    def clear(self) -> None:
        """Forget every program."""
        with self.lock:
            self.entries.clear()
            self._forget_shortcuts()

    def _forget_shortcuts(self) -> None:
        self.shortcuts.clear()
        self.latest = _NOTHING

    def _entry(self, given: BoundCall) -> tuple[Entry | None, list]:
        """The entry of a call, and its operands: what it closes over, then the arguments.

        None: the function decides by traced values that it closes over, as only its Python can.
        """
        key, operands = given.key, given.operands
        known = self.entries.get(key)
        if known is not None and known.is_current():
            return known, operands
        environment = Environment(self.f, *given.fixed)
        if environment.tracers:
            key = key, environment.key()
            if key in self.entries:
                known = self.entries[key]
                if known is None:
                    return None, operands
                if known.is_current():
                    return known, [*known.closed_over(environment), *operands]
        entry, closed_over = self._staged(environment, given)
        operands = [*closed_over, *operands]
        if entry is not None and entry.once:
            return entry, operands
        with self.lock:
            known = self.entries.get(key)
            if known is not None and known.is_current():  # another thread was faster
                return known, [*known.closed_over(environment), *given.operands]
            self.entries[key] = entry
            if known is not None:
                self._forget_shortcuts()
                self._count_change(known)
            while len(self.entries) > KEPT:
                self.entries.popitem(last=False)
                self._forget_shortcuts()
        return entry, operands

    def _staged(self, environment: Environment, given: BoundCall) -> tuple[Entry | None, list]:
        """A new entry, and the traced values that it closes over, operands before the others."""
        name = f"jit({name_of(self.f)})"
        before, draws = checks(environment), Draws(environment.generators)
        environment.lend()
        try:
            part = stage_part(given.call, list(map(_example, given.operands)), name, older=True)
        except ConcretizationError:
            if not environment.tracers:
                raise
            return None, []
        draws.refuse(name, "each call")
        values, (program,) = with_consts([part])
        reads = unchanged_since(before, checks(Environment(self.f, *given.fixed)))
        entry = Entry(name, program, part.structure, self.rounding, reads)
        places = {id(x): key for key, x in reversed(environment.traced.items())}
        entry.closes_over = [places.get(id(x)) for x in values]
        entry.holders = [p.holder for p in environment.places.values()]
        return entry, values

    def _count_change(self, old: Entry) -> None:
        """Warn, once, of a function that is compiled again and again."""
        self.changes += 1
        if self.changes == MANY and old.reads is not None:
            warnings.warn(
                f"{user_line()}: {old.name} has been compiled {MANY} times over, since what it "
                f"reads beside its arguments had changed, here {old.reads.changed()}. Pass that as "
                "an argument.", RuntimeWarning, stacklevel=2,
            )

    def code(self, *args: Any) -> Callable[[Sequence], list] | None:
        """What takes the numbers among such arguments to fresh outputs, if it can be native."""
        entry, _ = self._entry(self.signature.of(args, {}))
        try:
            code = None if entry is None else entry.executable.code
        except Interrupted:
            return None
        return None if isinstance(code, Exception) else code

    def exported(self, of: str, *example: Any) -> Any:
        """The function for native callers, as ``staging/exported.py`` has it."""
        with compiler():
            from functrans._transforms.staging import exported  # lazy: numba, which few have

        name = f"jit({name_of(self.f)})"
        return getattr(exported, of)(name, self.code(*example), example)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """What is run for such arguments: the program as staged and as optimised, and its steps."""
        given = self.signature.of(args, kwargs)
        known, before = self.entries.get(given.key), list(self.entries.values())
        entry, operands = self._entry(given)
        if entry is None:
            raise ArgumentError(
                f"jit: `{name_of(self.f)}` decides by a traced value that it closes over, so it is "
                "not compiled"
            )
        reason = f"new kind of arguments: {describe(operands)}"
        if entry in before:
            reason = "staged before"
        elif known is not None:
            reason = "what it reads has changed"
        return Lowered(entry, reason)


def _example(x: Any) -> Any:
    """A plain value of the same kind as ``x``."""
    if not isinstance(x, Tracer):
        return x
    concrete = x.concrete()
    return np.ones(x.shape, x.dtype) if concrete is None else concrete


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
        self.holders: list[Any] = []  # kept, so that no other gets the id that is in a key
        self.check_integers = integers(name, program)
        self.derived: dict[Any, Any] = {}

    @property
    def once(self) -> bool:
        """Whether it serves for one call: who knows where what it closes over will be then."""
        return None in self.closes_over

    def closed_over(self, environment: Environment) -> list:
        """The first operands."""
        return [environment.traced[key] for key in self.closes_over if key is not None]

    def is_current(self) -> bool:
        """Whether what the function read when it was staged is still so."""
        return self.reads is None or self.reads.unchanged()

    @lazy
    def executable(self) -> Executable:
        with compiler():
            from functrans._compile.run.executable import Executable  # lazy: the whole compiler

        return Executable(self.program, self.rounding)

    def run(self, args: Sequence) -> list:
        try:
            run = self.executable.run
        except Interrupted:
            return [np.array(y) for y in evaluate(self.program, args)]
        return run(args)

    @lazy
    def shortcut(self) -> tuple[Callable, Callable[[tuple], Any]]:
        """From plain arguments to what the caller gets, with nothing looked up between.

        The first is called with the arguments and may return NotImplemented; the second takes all.
        """
        run, native, structure = self.executable.run, self.executable.entry, self.structure
        if self.check_integers is not None:
            native, run = None, functools.partial(_checked, self.check_integers, run)
        if structure is tree.LEAF:
            return native or _nothing, lambda args: hand_out_fresh(run(args)[0])

        def general(args: tuple) -> Any:
            return tree.unflatten(structure, map(hand_out_fresh, run(args)))

        if native is None or structure.size < 2:
            return _nothing, general
        if structure.kind is tuple and set(structure.children) == {tree.LEAF}:
            return native, general

        def entry(*args: Any) -> Any:
            ys = native(*args)
            return ys if ys is NotImplemented else tree.unflatten(structure, ys)

        return entry, general

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

    def of(self, what: str, program: Program) -> Entry:
        """The entry of a program made from this one's."""
        return Entry(f"{what}({self.name})", program, None, self.rounding)

    def jvp(self, mask: Mask) -> tuple[Entry, list[bool]]:
        """The entry of outputs and tangents, and which outputs have one."""
        made, moves = restage.jvp(self.program, mask, self.name)
        return self.of("jvp", made), moves

    def vmap(self, mask: Mask, size: int) -> Entry:
        """The entry for a batch of ``size``, the batch axis of every output 0."""
        return self.of("vmap", restage.vmap(self.program, mask, size, self.name)[0])


def _checked(check: Callable[[Sequence], None], run: Callable, args: Sequence) -> list:
    check(args)
    return run(args)


class VJPPair:
    """A program split in two, of which the second takes what the first has kept for it."""

    def __init__(self, entry: Entry, mask: Mask, strong: bool):
        program = entry.program
        self.strong = strong
        takes = restage.inexact_outputs(program)
        joint = restage.vjp(program, mask, entry.name, takes, strong)
        split = restage.partition(joint, len(mask), len(program.outputs), takes)
        self.forward = entry.of("forward of vjp", split.forward)
        self.backward = entry.of("backward of vjp", split.backward)
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
        entry, moves = self.entry.derive(("jvp", mask), lambda: self.entry.jvp(mask))
        flat = JitCall(entry)(*primals, *[t for t in tangents if t is not None])
        ys, ts = flat[: len(moves)], iter(flat[len(moves) :])
        return ys, [next(ts) if m else None for m in moves]

    def record(self, trace: VJPTrace, args: Sequence) -> tuple:
        primals, parents = trace.operands([*map(trace.capture, args)])
        mask = tuple(p is not None for p in parents)
        key = "vjp", mask, trace.strong
        pair = self.entry.derive(key, lambda: VJPPair(self.entry, mask, trace.strong))
        flat = JitCall(pair.forward)(*primals)
        n = len(self.entry.program.outputs)
        return recorded(trace, Residuals(self, pair, primals, parents, flat[n:], n), flat[:n])

    def batch(self, trace: Any, xs: Sequence, batched: Sequence[bool]) -> Sequence:
        mask, size = tuple(batched), trace.batch_size
        key = ("vmap", mask, size)
        entry = self.entry.derive(key, lambda: self.entry.vmap(mask, size))
        return JitCall(entry)(*xs)

    def taylor(self, trace: Any, args: Sequence) -> tuple:
        return self.fun(*args)


class Residuals(restage.ProgramNode):
    """What a compiled forward program has kept for the backward one."""

    __slots__ = ()

    def pull(self, cts: Sequence) -> Sequence:
        read = [self.primals[i] for i in self.pair.reads]
        backward = JitCall(self.pair.backward)
        return self.spread(backward(*read, *self.residuals, *self.seeds(cts)))
