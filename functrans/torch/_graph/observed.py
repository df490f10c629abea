"""Operations that observers are told of: the one place where they ask whether anyone watches.

While no thread is watched, the call of an ``observed`` operation costs a test whether a set is
empty. Otherwise ``modes.state.watch``, the observers of its own thread, takes the call.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from functrans.extend import Primitive
from functrans.torch._graph.modes import state
from functrans.torch._graph.overriding import OVERRIDING, alert, override, overriding

if TYPE_CHECKING:
    from functrans.torch._graph.watching import Watch

_P = ParamSpec("_P")
_A = TypeVar("_A")
_B = TypeVar("_B")
_R = TypeVar("_R")
watched_threads: set[int] = set()


def set_watch(watch: Watch | None) -> None:
    """Tell ``watch`` of the operations of this thread from now on; None tells nobody."""
    state.watch = watch
    if watch is None:
        watched_threads.discard(threading.get_ident())
        alert.discard(threading.get_ident())
    else:
        watched_threads.add(threading.get_ident())
        alert.add(threading.get_ident())


def call_observed(name: str, f: Callable[..., _R], *args: Any) -> _R:
    """``f(*args)``, of which observers are told as ``name``."""
    if watched_threads and state.watch is not None:
        return state.watch.run(name, f, args, custom=True)
    return f(*args)


def _enter(call: Callable, f: Callable[..., _R], name: str, args: tuple,
           kwargs: dict[str, Any] | None = None) -> _R:
    """``f`` while threads are watched, or objects have functions of their own."""
    given = args if not kwargs else (*args, *kwargs.values())
    if OVERRIDING in alert and (found := overriding(given)):
        return override(call, found, args, kwargs or {})
    if state.watch is not None:
        return state.watch.run(name, f, args, kwargs)
    return f(*args, **(kwargs or {}))


def observe(f: Callable[_P, _R], name: str = "") -> Callable[_P, _R]:
    """``f``, of which observers are told as ``name``, or by its own name."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if alert:
            return _enter(call, f, name, args, kwargs)
        try:
            return f(*args, **kwargs)
        except Exception:
            if not (found := overriding((*args, *kwargs.values()))):
                raise
        return override(call, found, args, kwargs)

    call.overridable = True  # type: ignore[attr-defined]
    return call


# One and two operands have calls of their own, which cost no more than if the operation itself read
# the state of its thread. Packing and unpacking arguments costs three times that.


def observed_unary(f: Callable[[_A], _R], name: str = "") -> Callable[[_A], _R]:
    """``f(input)``, as by ``observed``."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(input: _A) -> _R:
        if alert:
            return _enter(call, f, name, (input,))
        try:
            return f(input)
        except Exception:
            if not (found := overriding((input,))):
                raise
        return override(call, found, (input,), {})

    call.overridable = True  # type: ignore[attr-defined]
    call.operands = 1  # type: ignore[attr-defined]  # for those that wrap it
    return call


def observed_binary(f: Callable[[_A, _B], _R], name: str = "") -> Callable[[_A, _B], _R]:
    """``f(input, other)``, as by ``observed``."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(input: _A, other: _B) -> _R:
        if alert:
            return _enter(call, f, name, (input, other))
        try:
            return f(input, other)
        except Exception:
            if not (found := overriding((input, other))):
                raise
        return override(call, found, (input, other), {})

    call.overridable = True  # type: ignore[attr-defined]
    call.operands = 2  # type: ignore[attr-defined]  # for those that wrap it
    return call


def observed_row(f: Callable[[_A, Primitive, _B, dict], _R],
                 ) -> Callable[[_A, Primitive, _B, dict], _R]:
    """``f(how, row, args, params)``, of which observers are told as the row with its operands.

    ``how`` is the trace that records the row, or the title of a view. A row that a trace records is
    part of an operation, and told of only where a backward records its own derivative.
    """

    @functools.wraps(f)
    def call(how: _A, row: Primitive, args: _B, params: dict) -> _R:
        if watched_threads and state.watch is not None and (
                type(how) is str or state.watch.records_derivative):
            return state.watch.run(row.name, f, args, params, (how, row, args, params))
        return f(how, row, args, params)

    return call
