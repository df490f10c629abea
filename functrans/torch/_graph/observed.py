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
    else:
        watched_threads.add(threading.get_ident())


def call_observed(name: str, f: Callable[..., _R], *args: Any) -> _R:
    """``f(*args)``, of which observers are told as ``name``."""
    if watched_threads and state.watch is not None:
        return state.watch.run(name, f, args, custom=True)
    return f(*args)


def observe(f: Callable[_P, _R], name: str = "") -> Callable[_P, _R]:
    """``f``, of which observers are told as ``name``, or by its own name."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if watched_threads and state.watch is not None:
            return state.watch.run(name, f, args, kwargs)
        return f(*args, **kwargs)

    return call


# One and two operands have calls of their own, which cost no more than if the operation itself read
# the state of its thread. Packing and unpacking arguments costs three times that.


def observed_unary(f: Callable[[_A], _R], name: str = "") -> Callable[[_A], _R]:
    """``f(input)``, as by ``observed``."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(input: _A) -> _R:
        if watched_threads and state.watch is not None:
            return state.watch.run(name, f, (input,))
        return f(input)

    call.operands = 1  # type: ignore[attr-defined]  # for those that wrap it
    return call


def observed_binary(f: Callable[[_A, _B], _R], name: str = "") -> Callable[[_A, _B], _R]:
    """``f(input, other)``, as by ``observed``."""
    name = name or f.__name__

    @functools.wraps(f)
    def call(input: _A, other: _B) -> _R:
        if watched_threads and state.watch is not None:
            return state.watch.run(name, f, (input, other))
        return f(input, other)

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
