"""Whether operations are recorded, what is kept in place of saved arrays, and quiet NumPy."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

# ---- Whether operations are recorded: ``no_grad``, ``enable_grad``, ``set_grad_enabled``
#
# The mode belongs to a thread. ``state.grad`` is read by every operation; only the classes here and
# the engine set it, and each restores the previous mode. While a forward level is open
# (``levels``), ``no_grad`` sets ``only_forward`` instead: operations are recorded for tangents.
# ``state.watch`` is who is told of each operation, usually None; ``observed`` sets and reads it.


class _State(threading.local):
    """What this thread records. New threads record."""

    grad = True
    only_forward = False
    forward = 0  # how many forward levels are open
    inference = False
    multithreading = True
    watch: Any = None
    as_tensors = False  # objects of classes that override functions are plain tensors
    where: tuple | None = None  # the user's line, while only rules record
    saving: Any = None  # (pack, unpack): what nodes keep in place of arrays
    refused_hooks: str | None = None  # why ``saving`` cannot be set
    batch: Any = None  # the batch that is open; see ``batches``


state = _State()
# The threads in which tensors or nodes are made in an unusual way. While there are none, an
# operation tests only whether this is empty.
unusual: set[int] = set()


def set_unusual(**fields: Any) -> None:
    """Set ``inference``, ``saving``, ``batch`` or what belongs to levels, of this thread."""
    state.__dict__.update(fields)
    if state.inference or state.forward or state.saving is not None or state.batch is not None:
        unusual.add(threading.get_ident())
    else:
        unusual.discard(threading.get_ident())


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require gradients are recorded in this thread."""
    return state.grad and not state.only_forward


def set_grad(mode: bool) -> None:
    """Record from now on, or do not: where a forward level is open, for tangents alone."""
    if unusual and state.forward:
        state.grad, state.only_forward = True, not mode
    else:
        state.grad = mode


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside ``inference_mode``."""
    return state.inference


class set_multithreading_enabled:
    """Accepted, when called and as a context: a backward runs in the thread that asks for it."""

    def __init__(self, mode: bool):
        self._before = state.multithreading
        state.multithreading = bool(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: Any) -> None:
        state.multithreading = self._before


def is_multithreading_enabled() -> bool:
    """What ``set_multithreading_enabled`` has set; it changes nothing else."""
    return state.multithreading


def _flag(who: str, mode: Any) -> bool:
    """``mode``, which must be a bool: numbers are too easily something else."""
    if type(mode) is not bool:
        raise TypeError(f"{who}(): argument 'enabled' (position 1) must be bool, not "
                        f"{type(mode).__name__}")
    return mode


class _Mode:
    """A context and a decorator that sets ``state.grad``. Contexts may be entered repeatedly."""

    mode = True

    def __init__(self) -> None:
        self._previous: list[tuple[bool, bool]] = []

    def __enter__(self) -> None:
        if unusual and state.batch is not None and not self.mode:
            state.batch.require_no_outer("no_grad")
        self._previous.append((state.grad, state.only_forward))
        set_grad(self.mode)

    def __exit__(self, *failure: Any) -> None:
        state.grad, state.only_forward = self._previous.pop()

    def _fresh(self) -> _Mode:
        """Another context like this one: a decorated function may run in several threads."""
        return type(self)()

    def __call__(self, f: Callable) -> Callable:
        if inspect.isgeneratorfunction(f):
            return self._generator(f)

        @functools.wraps(f)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return f(*args, **kwargs)

        return inside

    def _generator(self, f: Callable) -> Callable:
        """``f`` with the mode inside its body only, not where its caller runs between yields."""

        @functools.wraps(f)
        def inside(*args: Any, **kwargs: Any) -> Any:
            generator = f(*args, **kwargs)
            step, sent = generator.send, None
            while True:
                try:
                    with self._fresh():
                        value = step(sent)
                except StopIteration as end:
                    return end.value
                try:
                    step, sent = generator.send, (yield value)
                except GeneratorExit:
                    with self._fresh():
                        generator.close()
                    raise
                except BaseException as failure:  # whatever is thrown in belongs to the body
                    step, sent = generator.throw, failure

        return inside


class _Bare(_Mode):
    """A mode that decorates with or without parentheses."""

    def __new__(cls, f: Callable | None = None) -> Any:
        return super().__new__(cls) if f is None else cls()(f)


class no_grad(_Bare):
    """Inside, nothing is recorded: results do not require gradients.

    A context, or with or without parentheses a decorator of functions and generators.

    >>> from functrans import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    mode = False


class enable_grad(_Bare):
    """Inside, operations are recorded even within ``no_grad``."""


class set_grad_enabled(_Mode):
    """Turn recording on or off: at once when called, and back again when used as a context."""

    def __init__(self, mode: bool):
        self.mode = _flag("set_grad_enabled", mode)
        self._previous = [(state.grad, state.only_forward)]
        set_grad(self.mode)

    def __enter__(self) -> None:
        # the call has already set the mode, and __exit__ restores what was set before it
        set_grad(self.mode)

    def __exit__(self, *failure: Any) -> None:
        state.grad, state.only_forward = self._previous[0]

    def __call__(self, f: Callable) -> Callable:
        self.__exit__()  # used as a decorator, the call was not meant for now
        return super().__call__(f)

    def _fresh(self) -> _Mode:
        return set_grad_enabled(self.mode)


class inference_mode(_Mode):
    """As ``no_grad``, and ``is_inference_mode_enabled`` says so; ``mode=False`` undoes it.

    There are no tangents inside either.
    """

    def __new__(cls, mode: Any = True) -> Any:
        return cls()(mode) if callable(mode) else super().__new__(cls)

    def __init__(self, mode: bool = True):
        super().__init__()
        self.inference = bool(mode)
        self.mode = not self.inference
        self._outer: list[tuple[bool, int]] = []

    def __enter__(self) -> None:
        self._outer.append((state.inference, state.forward))
        forward = 0 if self.inference else state.forward
        set_unusual(inference=self.inference, forward=forward)
        super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        inference, forward = self._outer.pop()
        set_unusual(inference=inference, forward=forward)

    def _fresh(self) -> _Mode:
        return inference_mode(self.inference)


# ---- What nodes keep in place of the arrays that they save, while ``saved_tensors_hooks`` are set


class Packed:
    """What ``pack`` has made of a saved array, and the way back."""

    __slots__ = ("apart", "kept", "unpack")

    def __init__(self, array: np.ndarray, hooks: tuple[Callable, Callable]):
        pack, self.unpack = hooks
        self.kept = pack(array)
        memory = getattr(self.kept, "_array", None)
        # what is known to be on memory of its own, which changes in place do not reach
        self.apart = isinstance(self.kept, str | int | bytes) or (
            memory is not None and not np.may_share_memory(memory, array))


class PackedTuple(tuple):
    """What a node has saved, of which arrays are packed."""

    __slots__ = ()


def packed(values: Sequence) -> PackedTuple:
    """``values`` with the arrays among them packed."""
    return PackedTuple([
        Packed(v, state.saving) if isinstance(v, np.ndarray) else v for v in values
    ])


def mark(marks: Sequence, *values: Sequence) -> Sequence:
    """``marks``, none if all that was packed among ``values`` is on memory of its own."""
    return () if all(x.apart for v in values for x in v if type(x) is Packed) else marks


def unpack(values: Sequence) -> Sequence:
    """``values`` with what was packed unpacked."""
    if type(values) is not PackedTuple:
        return values
    return [v.unpack(v.kept) if type(v) is Packed else v for v in values]


def packed_parts(parts: Sequence) -> PackedTuple:
    """The parts of an elementwise node, of each of which what it saves is packed."""
    return PackedTuple([(i, action, packed(saved), unlike) for i, action, saved, unlike in parts])


def unpacked_parts(parts: Sequence) -> Sequence:
    """The way back from ``packed_parts``."""
    return [(i, action, unpack(saved), unlike) for i, action, saved, unlike in parts]


# ---- Without NumPy's warnings

# NumPy's variable for how errors are handled, which has no public name
_errors: Any = getattr(np._core.umath, "_extobj_contextvar", None)  # type: ignore[attr-defined]
with np.errstate(all="ignore"):
    _IGNORE = _errors and _errors.get()


def quietly(f: Callable, *xs: Any, **params: Any) -> Any:
    """``f(*xs, **params)`` without NumPy's warnings about infinities and NaNs: ``np.errstate``,
    which computes its state at each entry, takes six times as long.
    """
    if _errors is None:
        with np.errstate(all="ignore"):
            return f(*xs, **params)
    before = _errors.get()
    try:
        _errors.set(_IGNORE)
        return f(*xs, **params)
    finally:
        _errors.set(before)


def silent(f: Callable, operands: int) -> Callable:
    """``f``, of one or two operands, without these warnings."""
    if _errors is None or operands > 2:
        return functools.partial(quietly, f)
    get, use = _errors.get, _errors.set

    def of_one(x: Any) -> Any:
        before = get()
        try:
            use(_IGNORE)
            return f(x)
        finally:
            use(before)

    def of_two(x1: Any, x2: Any) -> Any:
        before = get()
        try:
            use(_IGNORE)
            return f(x1, x2)
        finally:
            use(before)

    return of_one if operands == 1 else of_two
