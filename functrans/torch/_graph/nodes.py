"""Nodes of the graph: what an operation leaves behind so that ``backward`` can go through it.

A *cotangent* here is a plain array, or a ``Value`` while the derivative itself is recorded, never
conjugated. What users see (hooks, ``.grad``, results of ``grad``) is its conjugate, in ``Tensor``s;
only ``tensor.show`` and ``tensor.take`` convert.

Interface for those who add nodes (custom functions, checkpoints): subclass ``Node`` and give

    edges             ``(node, output number)`` of each operand, None where it needs no gradient
    outputs           how many outputs there are
    pull(ct, create)  the cotangents of the operands, one an edge, None for none; with several
                      outputs ``ct`` is a list, None where nothing arrived. ``create``: record the
                      derivative
    release()         drop what was saved; a later ``pull`` raises ``freed()``
    repeats, bare     whether one walk may pass it twice, and the first time: without strong zero

Nodes are ordered by ``seq``, which falls with time: an operand's node always has the greater one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from functrans.torch._graph.hooks import Extras, RemovableHandle
from functrans.torch._graph.source import place
from functrans.torch._graph.storage import Storage, latest, sequence

if TYPE_CHECKING:
    from functrans.torch._tensors.tensor import Tensor

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
        _set_class(node, _titled(kind, node.name()))
    return node


# nodes of custom functions say that they are of the class of their context
_set_class = object.__dict__["__class__"].__set__


@functools.lru_cache(1024)  # users' functions may come and go
def _titled(kind: Any, title: str) -> type:
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


def freed(node: Node) -> RuntimeError:
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
