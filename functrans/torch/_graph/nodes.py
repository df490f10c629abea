"""Nodes of the graph: what an operation leaves behind, its memory, hooks, name and line."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from functrans.errors import PACKAGE

if TYPE_CHECKING:
    from functrans.torch._tensors.tensor import Tensor


# ---- Hooks of nodes and tensors: where they are kept, and the handles that take them back
#
# ``Retaining`` is the part of ``Tensor`` that has results of operations keep their gradient.


class Extras:
    """The rarer state of a node: hooks by output, tensors that retain their grad, metadata."""

    __slots__ = ("metadata", "post_hooks", "pre_hooks", "retaining", "tensor_hooks")

    def __init__(self) -> None:
        self.tensor_hooks: dict[int, dict] = {}
        self.retaining: dict[int, weakref.ref] = {}
        self.pre_hooks: dict[int, Any] = {}
        self.post_hooks: dict[int, Any] = {}
        self.metadata: dict[Any, Any] = {}


class Retaining:
    """A tensor whose ``grad`` is filled in although it is the result of an operation."""

    __slots__ = ()

    if TYPE_CHECKING:
        requires_grad: Any
        _node: Any
        _index: int

    def retain_grad(self) -> None:
        """Let ``backward`` fill in ``grad`` although this is not a leaf."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        if self._node is not None:
            self._node.extra().retaining[self._index] = weakref.ref(self)

    def stop_retaining(self) -> bool:
        """Whether ``grad`` was filled in from this place of the graph; it is no longer."""
        kept = self.retains_grad
        if kept:
            del self._node.extra().retaining[self._index]
        return kept

    @property
    def retains_grad(self) -> bool:
        """Whether ``retain_grad`` was called on it, it not being a leaf."""
        extras = self._node.extras if self._node is not None else None
        ref = extras.retaining.get(self._index) if extras is not None else None
        return ref is not None and ref() is self


class RemovableHandle:
    """Takes back a hook: ``handle.remove()``, or leaving a ``with`` block."""

    _next_id = itertools.count()

    def __init__(self, hooks: dict):
        self.hooks = hooks
        self.id = next(RemovableHandle._next_id)

    @classmethod
    def enter(cls, hooks: Any, hook: Any, prepend: bool = False) -> RemovableHandle:
        """The handle of ``hook``, entered at the end of ``hooks``, or before all others."""
        handle = cls(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def remove(self) -> None:
        self.hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *failure: Any) -> None:
        self.remove()


# ---- The line of the user's code that called an operation, for errors and profiles

_OURS = (PACKAGE, os.path.dirname(np.__file__) + os.sep, "<__array_function__")


def caller(depth: int = 2) -> tuple:
    """The place in the user's code: a code object and the offset of an instruction in it.

    ``depth``: the number of a frame that is functrans's own, or its caller.
    """
    frame: Any = sys._getframe(depth)
    while _is_ours(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


@functools.lru_cache(4096)
def _is_ours(file: str) -> bool:
    """Whether this is a file of functrans or NumPy."""
    return file.startswith(_OURS)


def place(where: tuple | None) -> str:
    """``file:line`` of what ``caller`` returned."""
    if where is None:
        return "an unknown line"
    code, at = where
    lines = [line for start, stop, line in code.co_lines() if start <= at < stop and line]
    return f"{code.co_filename}:{lines[0] if lines else code.co_firstlineno}"


# ---- The memory that tensors share: how often it was changed, and by what

# the age of nodes and of changes in place; it falls with time
sequence = itertools.count(0, -1)


class _Latest:
    """``change``: the age of the newest change of any memory. A node that was recorded after it has
    saved nothing that has changed."""

    __slots__ = ("change",)

    def __init__(self) -> None:
        self.change = next(sequence)


latest = _Latest()


class Storage:
    """The state that tensors on the same memory share.

    ``version`` counts changes in place, ``changed`` says by what and where the last one was made.
    ``history`` counts those that a graph has recorded, after which views look up their node again.
    """

    version = 0
    history = 0
    changed: tuple | None = None
    reshaped = False  # by ``resize_``: views no longer know their place in the base

    def count(self, by: str | None = None, where: tuple | None = None) -> None:
        """Count a change of the memory, made by ``by`` at the line ``where``."""
        self.version += 1
        if by is not None:
            self.changed = by, where
        latest.change = next(sequence)


class InferenceStorage(Storage):
    """That of tensors made in ``inference_mode``: changes are not counted, so that no node can save
    such a tensor."""

    @property
    def version(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  # it raises
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
            "inference mode in computation tracked by autograd. To work around this, you can make "
            "a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` "
            "instead of `torch.inference_mode()`."
        )

    @version.setter
    def version(self, number: int) -> None:
        pass

    def count(self, by: str | None = None, where: tuple | None = None) -> None:
        """Changes are not counted."""


class Joint:
    """Several storages as one: for values of which it is not known on whose memory they are."""

    def __init__(self, storages: Sequence[Storage]):
        self.storages = storages

    @property
    def version(self) -> int:
        return sum([s.version for s in self.storages])

    @property
    def changed(self) -> tuple | None:
        return next((s.changed for s in self.storages if s.changed), None)


def joint(marks: Sequence) -> Any:
    """The storage of what a node with these marks has saved."""
    if len(marks) == 1:
        return marks[0][0]
    return Joint([s for s, _ in marks]) if marks else None


# ---- Names: of functions that are made by others, and of nodes, as ``grad_fn`` shows them

_F = TypeVar("_F", bound=Callable)
# Rows whose nodes are known under a shorter name than theirs.
_TITLES = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow",
    "square": "Pow", "absolute": "Abs", "matmul": "Mm", "concatenate": "Cat", "getitem": "Slice",
    "put_add": "SliceBackward", "scatter_set": "IndexPut", "broadcast_to": "Expand",
    "reshape": "View", "transpose": "Permute", "astype": "ToCopy", "arctan2": "Atan2",
}


def named(f: _F, name: str, doc: str | None) -> _F:
    """``f``, called ``name`` from now on, with a docstring."""
    f.__name__ = f.__qualname__ = name
    f.__doc__ = doc
    return f


def typename(x: Any) -> str:
    """The name of a type, or of that of an object, with its module unless it is Python's own."""
    kind = x if isinstance(x, type) else type(x)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def title_for(name: str) -> str:
    """The title of the nodes of a function."""
    return "".join([w.capitalize() for w in name.strip("_").split("_")]) + "Backward0"


@functools.cache
def title_of(row: str) -> str:
    """The title of the nodes of a row."""
    return f"{_TITLES[row]}Backward0" if row in _TITLES else title_for(row)


# ---- Nodes of the graph: what an operation leaves behind so that ``backward`` can go through it
#
# A *cotangent* here is a plain array, or a ``Value`` while the derivative itself is recorded, never
# conjugated. What users see (hooks, ``.grad``, results of ``grad``) is its conjugate, in
# ``Tensor``s; only ``tensor.show`` and ``tensor.take`` convert.
#
# Interface for those who add nodes (custom functions, checkpoints): subclass ``Node`` and give
#
#     edges             ``(node, output number)`` of each operand, None where it needs no gradient
#     outputs           how many outputs there are
#     pull(ct, create)  the cotangents of the operands, one an edge, None for none; with several
#                       outputs ``ct`` is a list, None where nothing arrived. ``create``: record the
#                       derivative
#     release()         drop what was saved; a later ``pull`` raises ``freed()``
#     repeats, bare     whether one walk may pass it twice, and the first time: without strong zero
#
# Nodes are ordered by ``seq``, which falls with time: an operand's node always has the greater one.

Edge = tuple["Node", int]


class Node:
    """An operation in the graph; see the module's docstring."""

    # ``plain``: a walk by the bare formulas may pass it without looking at ``extras``, ``repeats``
    # and ``wary``
    __slots__ = ("__weakref__", "edges", "extras", "outputs", "plain", "seq")

    # a further base of the class that it has for users, see ``shown``
    seen_as: type | None = None
    # whether a walk by the bare formulas asks if it may pass it, see ``walk._once``
    wary = False
    # whether ``pull`` takes cotangents that ``vmap`` traces
    batches = True
    repeats = False  # it may run code of the user's
    # whether ``pull`` is called too where no output has a cotangent
    takes_undefined = False
    # each saved array that belongs to a tensor: its storage and the version it had
    marks: Sequence[tuple[Storage, int]] = ()

    def __init__(self, edges: Sequence, outputs: int = 1):
        self.seq = next(sequence)
        self.edges = edges
        self.extras: Extras | None = None
        self.outputs = outputs
        self.plain = False

    def pull(self, ct: Any, create: bool) -> Sequence:
        raise NotImplementedError(self.name())

    def bare(self, ct: Any, create: bool) -> Iterable[tuple[Edge | None, Any]]:
        """``pull`` without strong zero, so that 0 times inf is NaN: edges with their cotangents."""
        return zip(self.edges, self.pull(ct, create), strict=False)

    def release(self) -> None:
        """Drop what only the backward needs."""

    def name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {hex(id(self))}>"

    if TYPE_CHECKING:
        # put on the class by functrans.torch, from a module above tensors

        def __getattr__(self, name: str) -> Any: ...  # of those that are shown
        title: str  # of an ``OpNode``

        def __call__(self, *grads: Any) -> Any: ...

    @property
    def next_functions(self) -> tuple:
        """The nodes of the operands, each with the number of its output."""
        return tuple([(None, 0) if e is None else (shown(e[0]), e[1]) for e in self.edges])

    @property
    def metadata(self) -> dict:
        return self.extra().metadata

    def extra(self) -> Extras:
        if self.extras is None:
            self.extras = Extras()
            self.plain = False
        return self.extras

    def register_hook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` each time this node has been passed."""
        return RemovableHandle.enter(self.extra().post_hooks, hook)

    def register_prehook(self, hook: Any) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` each time before this node is passed."""
        return RemovableHandle.enter(self.extra().pre_hooks, hook)

    def _sequence_nr(self) -> int:
        return -self.seq


class Shown:
    """Part of the classes of nodes that users have seen: it has what is for them alone.

    Until then all nodes of a kind are of one class without ``__getattr__``, whose attributes
    CPython reads in a third of the time.
    """

    __slots__ = ()


class OpNode(Node):
    """The node of an operation, which users see under its ``title``."""

    __slots__ = ("title",)

    seen_as = Shown
    repeats = True

    def name(self) -> str:
        return self.title


def shown(node: Any) -> Any:
    """``node`` as users see it, of a class that goes by its name."""
    kind = type(node)
    if node is not None and kind.seen_as is not None and not issubclass(kind, kind.seen_as):
        _set_class(node, _title(kind, node.name()))
    return node


# nodes of custom functions say that they are of the class of their context
_set_class = object.__dict__["__class__"].__set__


@functools.lru_cache(1024)  # users' functions may come and go
def _title(kind: Any, title: str) -> type:
    return type(title, (kind, kind.seen_as), {"__slots__": (), "__module__": kind.__module__})


class AccumulateGrad(Node):
    """Where the graph ends: a leaf, whose ``.grad`` the engine adds to."""

    __slots__ = ("variable",)

    repeats = wary = True

    def __init__(self, variable: Tensor):
        self.seq = next(sequence)
        self.edges: Sequence = ()
        self.extras = None
        self.outputs = 1
        self.plain = False
        self.variable = variable

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    def pull(self, ct: Any, create: bool) -> Sequence:
        self.variable.accumulate(ct, create)
        return ()


def free(node: Node) -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        "after they have already been freed). Saved intermediate values of the graph are freed "
        "when you call .backward() or autograd.grad(). Specify retain_graph=True there if what "
        f"{node.name()} had saved is needed again."
    )


def check(node: Any) -> None:
    """Raise if a saved array is no longer what it was when ``node``, just made, saved it."""
    if node.seq > latest.change:
        check_marks(node)


def check_marks(node: Any) -> None:
    """``check`` of what was saved at any time before ``node`` was made."""
    for storage, version in node.marks:
        if storage.version != version:
            by, where = storage.changed or ("an operation", None)
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: {node.name()} saved it at {place(node.where)} at version "
                f"{version}, and {by} at {place(where)} has changed it to version "
                f"{storage.version}. Change a clone() instead, or write the operation without "
                "the trailing underscore."
            )
