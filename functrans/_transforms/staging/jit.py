"""``jit``: a function staged once for each kind of arguments, and run as one native function.

A compiled function is a ``Call``: under another transform it stays compiled. Its derivative
programs are made by running that transform on its program while staging, once, and kept with it.
"""

from __future__ import annotations

import functools
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar, overload

import numpy as np

from functrans import tree
from functrans._compile.ir.program import evaluate
from functrans._compile.lowering.numbers import Rounding
from functrans._compile.nest.ir import RoomExceeded
from functrans._core.array import Array
from functrans._core.bind import Tracer
from functrans._core.locks import Interrupted, Lock, compiler
from functrans._core.primitive import NanArrived, ZeroPolicy, products
from functrans._core.warned import tell
from functrans._core.writing import handed_to
from functrans._inspect.lowered import Explanation, Lowered, Refusal, Staging
from functrans._transforms.arguments import describe, hand_out_tree, require_callable
from functrans._transforms.derived import Derived, surface, surfacing
from functrans._transforms.drawing import Again, Drawn, drawing, rehearsal
from functrans._transforms.options import require_count
from functrans._transforms.staging import batches
from functrans._transforms.staging.batches import is_batched
from functrans._transforms.staging.code_loops import may_loop
from functrans._transforms.staging.compiled import Compiled, warned
from functrans._transforms.staging.entry import Entry, JitCall, Nested, nothing
from functrans._transforms.staging.environment import Environment
from functrans._transforms.staging.generators import Draws
from functrans._transforms.staging.names import homes
from functrans._transforms.staging.paths import TraceTree
from functrans._transforms.staging.reads import Reads, checks, unchanged_since
from functrans._transforms.staging.recording import Outcome, Recording, Uncompiled, record
from functrans._transforms.staging.signature import BoundCall, Signature
from functrans._transforms.staging.staging import StagedFunction, with_consts, writing
from functrans.config import settings
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    UnsupportedError,
    name_of,
    user_line,
    warn,
)

P = ParamSpec("P")
R = TypeVar("R")

# Kinds of arguments that one function keeps programs for; the one staged first goes first.
KEPT = 128
# Times that a function is compiled anew, since what it reads has changed, until a warning is given.
MANY = 4
# Why a function is staged once more where a NaN has arrived.
NAN_ARRIVED = "a derivative had a NaN: now with strong zero"
# Paths that are kept for one kind of arguments.
MOST = 64
# Whose path is staged of a batch that is not known to take several.
FIRST: Mapping = MappingProxyType({})


@overload
def jit(
    f: Callable[P, R], *, static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ..., precise: bool = ..., contract: bool = ...,
    max_paths: int = ...,
) -> Compiled[P, R]: ...


@overload
def jit(
    f: None = None, *, static_argnums: int | Sequence[int] = ...,
    static_argnames: str | Sequence[str] = ..., precise: bool = ..., contract: bool = ...,
    max_paths: int = ...,
) -> Callable[[Callable[P, R]], Compiled[P, R]]: ...


@surfacing
def jit(
    f: Callable | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    precise: bool = False,
    contract: bool = False,
    max_paths: int = MOST,
) -> Callable:  # as the overloads say
    """``f`` compiled: staged once for each kind of arguments, then run without its Python.

    The kind is the structure of the arguments, their shapes and dtypes, and the values of static
    arguments and of leaves that are not numbers. Where Python decides by values (``if``, ``while``,
    ``range(n)``, ``int(x)``), each path through the function is staged when a call first takes it,
    and at most ``max_paths`` of them are kept for each kind of arguments. Loops of many passes are
    staged once where their source says all that they do, others pass by pass; ``explain()`` says
    what has become of each. Closures, globals,
    attributes and arrays that the function reads are compared at each call, and if they have
    changed it is staged again. Side effects happen when a path is staged; drawing random numbers is
    refused. ``precise`` takes scalar mathematical functions of the C library instead of vector
    ones, which are within 4 ulp. ``contract`` lets a product and a sum become one instruction that
    rounds once: faster by up to a third where sums of products are all there is, and no longer what
    NumPy computes.

    Inside and outside every other transform; ``jit(f).lower(*args)`` shows what is run.

    >>> import functrans as ft, numpy as np
    >>> ft.jit(ft.grad(lambda x: np.sum(np.sin(x))))(np.array([0.0, np.pi]))
    Array([ 1., -1.])
    """
    options = {
        "static_argnums": static_argnums, "static_argnames": static_argnames, "precise": precise,
        "contract": contract, "max_paths": max_paths,
    }
    if f is None:
        return functools.partial(jit, **options)
    require_callable("jit", f)  # followed where it is staged: what it reads is looked up in itself
    compiled = Jitted(f, static_argnums, static_argnames, Rounding(precise, contract),
                      require_count("jit", "max_paths", max_paths))

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            if not settings().at_once:
                return handed_to(sys._getframe(1), compiled(args, kwargs))
            unchanged, entry = compiled.latest
            if not kwargs and (unchanged is None or unchanged()):
                y = entry(*args)
                if y is not NotImplemented:
                    return y
            return handed_to(sys._getframe(1), compiled.again(args, kwargs))
        except RoomExceeded:
            return handed_to(sys._getframe(1), compiled.without_loops(args, kwargs))
        except Exception as error:
            surface(error)
            raise

    called: Any = Derived(call, f, (jit, (f,), options))
    called.lower, called.explain = compiled.lower, compiled.explain
    called.memory, called.clear_cache = compiled.memory, compiled.clear
    for name, of in (("numba", "for_numba"), ("ctypes", "for_c"),
                     ("low_level_callable", "for_scipy")):
        setattr(called, name, functools.partial(compiled.exported, of))
    return called


# What programs do not depend on but by shape, dtype and type.
_ARRAYS = frozenset({np.ndarray, Array, np.float64})
_PLAIN = _ARRAYS | {float, int}


def _found_again(found: Entry | TraceTree | Nested) -> bool:
    """Whether what the C function compares had moved in memory, and was found."""
    return found.guards is not None and found.guards.stale and found.guards.find()


def _kinds(args: tuple, kwargs: dict) -> tuple:
    """Shapes and dtypes of arrays and types of everything else by position; names."""
    kinds = tuple([(x.shape, x.dtype) if type(x) in _ARRAYS else type(x) for x in args])
    return (kinds, *kwargs) if kwargs else kinds


Latest = tuple[Callable[[], bool] | None, Callable]
_NOTHING: Latest = None, nothing


class Jitted:
    """A function and the programs that were staged of it.

    Programs are in ``entries``. Two caches stand before it, each for calls that the one behind it
    takes too long for. ``latest`` is the C function that took the last call, which looks at types,
    dtypes and shapes itself, 0.22 us a call of a small program, and before it what tells whether
    all that the program read is as it was, None if it read nothing. ``shortcuts`` is asked where it
    declines, by the kinds of plain arguments alone: 0.9 us for a function whose kinds take turns,
    or whose program has no C function. Arguments in containers or by name have a function between
    that takes them apart (``containers.Nested``). Everything else takes the general way, with the
    signature and all that the function closes over: 11 us. Both forget all when a program goes.
    """

    __slots__ = ("changes", "doubted", "entries", "f", "history", "latest", "lock", "loops", "most",
                 "name", "rounding", "shortcuts", "signature", "told", "written_out")

    def __init__(self, f: Callable, nums: Any, names: Any, rounding: Rounding, most: int = MOST):
        self.f, self.signature, self.rounding = f, Signature(f, nums, names), rounding
        self.name, self.most = f"jit({name_of(f)})", most
        self.entries: OrderedDict[Any, Entry | TraceTree | None] = OrderedDict()
        self.doubted: set[Any] = set()  # kinds of arguments that need strong zero
        self.shortcuts: dict[tuple, Entry | TraceTree | Nested] = {}
        self.latest: Latest = _NOTHING
        self.lock = Lock()
        self.loops: Mapping[str, str] = {}  # what became of those of the last staging
        self.written_out = False  # whether no loop is staged as one any more
        self.told: set[str] = set()
        self.history: deque[Staging | Refusal] = deque(maxlen=KEPT)
        self.changes = 0  # programs that were staged anew, since what they read had changed

    def again(self, args: tuple, kwargs: dict) -> Any:
        """The call, which the latest entry has not taken."""
        found = self.shortcuts.get(_kinds(args, kwargs))
        if found is None or not found.is_current():
            return self(args, kwargs)
        try:
            entry, run = found.shortcut
        except Interrupted:
            return self(args, kwargs)
        if kwargs or entry is not self.latest[1] or _found_again(found):
            self.latest = found.quick, entry
            y = entry(*args, **kwargs)
            if y is NotImplemented and _found_again(found):
                y = entry(*args, **kwargs)
            if y is not NotImplemented:
                return y
        try:
            y = run(args)
        except NanArrived:
            y = NotImplemented
        return self(args, kwargs) if y is NotImplemented else y

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        if not settings().compiles:
            return hand_out_tree(self.signature.called(*args, **kwargs))
        drawn = Drawn()
        if settings().warnings:
            once, again = (functools.partial(f, drawn) for f in (self._called, self._python))
            return warned(once, again, args, kwargs)
        return self._called(drawn, args, kwargs)

    def _python(self, drawn: Drawn, args: tuple, kwargs: dict) -> Any:
        """What Python gives, on the random numbers that the call has drawn."""
        return drawing(Again(drawn), lambda: self.signature.called(*args, **kwargs))

    def _called(self, drawn: Drawn, args: tuple, kwargs: dict) -> Any:
        given = self.signature.of(args, kwargs, drawn)
        try:
            return self._run(given, args, kwargs)
        except NanArrived:
            if len(self.doubted) >= KEPT:
                self.doubted.clear()
            self.doubted.add(given.key)
            self._forget_shortcuts()
            return self._run(given, args, kwargs)

    def _products(self, given: BoundCall) -> ZeroPolicy:
        """How products in derivatives inside the function are formed."""
        how = products() if writing() else ZeroPolicy.CHECKED
        if how is ZeroPolicy.BARE or given.key in self.doubted:
            return ZeroPolicy.STRONG
        return how

    def _run(self, given: BoundCall, args: tuple, kwargs: dict) -> Any:
        entry, operands = self._entry(given)
        if entry is None:
            return hand_out_tree(self._python(given.drawn, args, kwargs))
        if isinstance(entry, Entry):
            if entry.once:
                return entry.result(evaluate(entry.program, operands))
            if entry.check_integers is not None:
                entry.check_integers(operands)
            y = entry.result(JitCall(entry)(*operands))
        else:
            run = batches.run if any(map(is_batched, operands.values())) else TraceTree.run
            y = run(entry, operands, functools.partial(self._grow, entry, given))
            if y is NotImplemented:
                if why := entry.refusal():
                    self._note_refusal(why, given)
                return hand_out_tree(
                    entry.run_by_python(lambda: self._python(given.drawn, args, kwargs)))
        # fresh code is verified by now: the shorter way does not ask
        fixed = given.fixed or self.signature.nums or entry.closes_over or entry.draws
        if not fixed and _PLAIN.issuperset(map(type, given.operands)):
            nested = kwargs or not _PLAIN.issuperset(map(type, args))
            way = Nested(entry, given.structure) if nested else entry
            self.shortcuts[_kinds(args, kwargs)] = way
        return y

    def without_loops(self, args: tuple, kwargs: dict) -> Any:
        """The call, of which a loop has no room for what its backward reads: pass by pass."""
        self.written_out = True
        self.clear()
        return self(args, kwargs)

    def clear(self) -> None:
        """Forget every program."""
        with self.lock:
            self.entries.clear()
            self.doubted.clear()
            self._forget_shortcuts()

    def _forget_shortcuts(self) -> None:
        self.shortcuts.clear()
        self.latest = _NOTHING

    def _entry(
        self, given: BoundCall, how: ZeroPolicy | None = None
    ) -> tuple[Entry | TraceTree | None, Any]:
        """What runs a call, and what it begins with: what it closes over, and the arguments.

        None: only the function's Python can run it.
        """
        how = how or self._products(given)
        key, operands = (how, given.key), given.operands
        known = self.entries.get(key)
        if known is not None and known.is_current():
            return known, known.values({}, operands, given.drawn)
        environment = Environment(self.f, *given.fixed)
        traced = environment.traced
        if environment.tracers:
            key = key, environment.key()
            if key in self.entries:
                known = self.entries[key]
                if known is None:
                    return None, operands
                if known.is_current():
                    return known, known.values(traced, operands, given.drawn)
        start = perf_counter()
        entry, values = self._staged(environment, given, how)
        if entry is not None:
            before = self.entries.get((ZeroPolicy.CHECKED, given.key))
            doubted = how is ZeroPolicy.STRONG and before is not None
            reason = NAN_ARRIVED if doubted else _reason(known)
            self._note(reason, given, start, entry.pieces())
        if entry is not None and entry.once:
            return entry, values
        with self.lock:
            known = self.entries.get(key)
            if known is not None and known.is_current():  # another thread was faster
                return known, known.values(traced, operands, given.drawn)
            self.entries[key] = entry
            if known is not None:
                self._forget_shortcuts()
                self._count_change(known)
            while len(self.entries) > KEPT:
                self.entries.popitem(last=False)
                self._forget_shortcuts()
        return entry, values

    def _staged(
        self, environment: Environment, given: BoundCall, how: ZeroPolicy
    ) -> tuple[Entry | TraceTree | None, Any]:
        """What will run such calls, and what this one begins with."""
        operands, traced = given.operands, environment.traced
        try:
            path, before, after = self._record(environment, given, (), how)
        except Uncompiled as why:
            made = TraceTree(self.name, self.rounding, self.most, self.told)
            made.give_up(why)
            return made, made.values({}, operands, given.drawn)
        except ConcretizationError:
            if not environment.tracers:
                raise
            return None, operands
        unchanged = unchanged_since(before, after)
        holders = [p.holder for p in environment.places.values()]
        places = {id(x): key for key, x in reversed(traced.items())} | path.draws.keys()
        if path.decisions:
            if any([id(x) not in places for x, _ in path.lifted]):
                return None, operands  # who knows where what it closes over will be then
            grown = TraceTree(self.name, self.rounding, self.most, self.told)
            grown.add(path, places)
            grown.depend_on(unchanged)
            grown.holders, grown.closes_over = holders, tuple(traced)
            return grown, grown.values(traced, operands, given.drawn)
        if not path.program.outputs and tree.unflatten(path.structure, []) is None:
            warn(f"{self.name} returns None, so that nothing is computed. Is a `return` missing? "
                 "What a compiled function writes into its arguments is not seen outside.")
        part = StagedFunction(path.program, path.structure, path.lifted)
        values, (program,) = with_consts([part])
        reads = Reads(list(unchanged.values())) if unchanged else None
        entry = Entry(self.name, program, path.structure, self.rounding, reads)
        entry.closes_over = [places.get(id(x)) for x in values]
        entry.draws = path.draws.draws
        entry.holders = holders
        if not values:
            entry.inputs = self.signature.names_of(given)
        if not entry.once:
            return entry, entry.values(traced, operands, given.drawn)
        drawn = given.drawn.values(enumerate(entry.draws))
        return entry, [*[drawn.get(places.get(id(x)), x) for x in values], *operands]

    def _record(
        self, environment: Environment, given: BoundCall, known: Sequence[Outcome], how: ZeroPolicy,
        entry: Mapping = FIRST,
    ) -> tuple[Recording, dict, dict]:
        """The path of a call, and what the function read beside its arguments before and after."""
        before, draws = checks(environment), Draws(environment.generators, environment.libraries)
        environment.suspend()
        operands = batches.one_of(given.operands, entry)
        examples = list(map(_example, operands))
        with rehearsal(given.drawn), self._loops() as call:
            path = record(functools.partial(call, *given.call.args), operands, examples, self.name,
                          known, how, given.drawn)
        after = Environment(self.f, *given.fixed)
        draws.refuse(self.name, "the same for each call", after.generators, path.draws.states)
        return path, before, checks(after)

    @contextmanager
    def _loops(self) -> Iterator[Callable]:
        """A block in which the function's loops may be staged as loops, and how it is called."""
        if self.written_out or not settings().loops or not may_loop(self.f):
            self.loops = {}
            yield self.signature.call
            return
        from functrans._transforms.staging import loops  # lazy: few functions have some

        looked = loops.Loops(homes([self.f]))
        self.loops = looked.notes
        with loops.looking(looked):
            yield self.signature.calling(loops.with_hooks(self.f, looked.homes))

    def _grow(self, paths: TraceTree, given: BoundCall, known: Sequence[Outcome],
              entry: Mapping = FIRST) -> None:
        """Add the path of a call, or of an entry of a batch, which begins with ``known`` outcomes.
        """
        environment, start = Environment(self.f, *given.fixed), perf_counter()
        try:
            how = self._products(given)
            path, before, after = self._record(environment, given, known, how, entry)
        except Uncompiled as why:
            paths.give_up(why)
            return
        places = {id(x): key for key, x in reversed(environment.traced.items())}
        places |= path.draws.keys()
        if any([id(x) not in places for x, _ in path.lifted]):
            paths.endless = True
            return
        with self.lock:
            old = paths.pieces()
            paths.add(path, places)
            paths.depend_on(unchanged_since(before, after))
            self._forget_shortcuts()  # it may depend on more
        new = path.decisions[len(known) - 1 : len(known)]
        reason = ", ".join(["another path", *map(str, new)])
        self._note(reason, given, start, [e for e in paths.pieces() if e not in old])

    def _note(self, reason: str, given: BoundCall, start: float, entries: Sequence[Entry]) -> None:
        """Remember what has been staged, and tell who wants to know."""
        staging = Staging(reason, describe(given.operands), perf_counter() - start, entries,
                          self.loops)
        self.history.append(staging)
        tell(f"{self.name}: {staging.line()}")

    def _note_refusal(self, why: str, given: BoundCall) -> None:
        """Remember that Python runs calls from now on, and tell everybody."""
        refusal = Refusal(why, describe(given.operands))
        self.history.append(refusal)
        tell(f"{self.name}: {refusal.line()}", always=True)

    def explain(self) -> Explanation:
        """What was staged and compiled so far, why, and in what time."""
        return Explanation(self.name, list(self.history.copy()))  # threads may add to it

    def _count_change(self, old: Entry | TraceTree) -> None:
        """Warn, once, of a function that is compiled again and again."""
        self.changes += 1
        if self.changes == MANY and old.reads is not None:
            warn(
                f"{user_line()}: {old.name} has been compiled {MANY} times over, since what it "
                f"reads beside its arguments had changed, here {old.reads.changed()}. Pass that as "
                "an argument."
            )

    def code(self, *args: Any) -> Callable[[Sequence], list] | None:
        """What takes the numbers among such arguments to fresh outputs, if it can be native."""
        entry, _ = self._entry(self.signature.of(args, {}), ZeroPolicy.BY_ROW)
        try:
            code = entry.executable.code if type(entry) is Entry and not entry.draws else None
        except Interrupted:
            return None
        return None if isinstance(code, Exception) else code

    def exported(self, of: str, *example: Any) -> Any:
        """The function for native callers, as ``staging/exported.py`` has it."""
        with compiler():
            from functrans._transforms.staging import exported  # lazy: numba, which few have

        code = self.code(*example)
        if code is None:
            raise UnsupportedError(
                f"{self.name} has no native code that is one function: it decides by values, in "
                "Python. Use ft.cond or np.where."
            )
        return getattr(exported, of)(self.name, code, example)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """What is run for such arguments: the program as staged and as optimised, and its steps."""
        given = self.signature.of(args, kwargs)
        with self.lock:
            key = self._products(given), given.key
            known, before = self.entries.get(key), list(self.entries.values())
        entry, operands = self._entry(given)
        reason = f"new kind of arguments: {describe(given.operands)}"
        if entry in before:
            reason = "staged before"
        elif known is not None:
            reason = "what it reads has changed"
        if type(entry) is TraceTree:
            leaves = set(entry.leaves)
            found = entry.find(operands, functools.partial(self._grow, entry, given))
            if found is not None and entry in before and found[0] not in leaves:
                reason = "another path"
            entry = None if found is None else entry.entry_of(found[0])
        if not isinstance(entry, Entry):
            raise ArgumentError(
                f"jit: `{name_of(self.f)}` decides by a traced value that it closes over, or takes "
                "too many paths, so it is not compiled"
            )
        return Lowered(entry, reason)

    def memory(self, *args: Any, **kwargs: Any) -> int:
        """The bytes that a call with such arguments is expected to take at most, beside them."""
        from functrans._transforms.staging import peaks  # lazy: seldom used

        if not settings().compiles:
            return peaks.of_call(self.signature.called, args, kwargs)
        return peaks.of_executable(self.lower(*args, **kwargs).entry.executable)


def _reason(known: Entry | TraceTree | None) -> str:
    """Why a function is staged in place of what was there."""
    if known is None or known.reads is None:
        return "new kind of arguments"
    return f"{known.reads.changed()}, which it reads, has changed"


def _example(x: Any) -> Any:
    """A plain value of the same kind as ``x``."""
    if not isinstance(x, Tracer):
        return x
    concrete = x.concrete_value()
    return np.ones(x.shape, x.dtype) if concrete is None else concrete
