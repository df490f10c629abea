"""``Tensor``: mutable memory, its place in the graph, and the gradient that ``backward`` leaves.

Fields (all but ``_array`` and ``_storage`` are class attributes until they are needed):

    _array       the ndarray, always one, also without axes; a view's is a view of its base's
    _storage     ``graph.Storage``, shared by all tensors on the same memory
    _node, _index  the node whose output this is; None for leaves. Read through ``edge_of``
    _requires    a leaf that requires gradients
    _base, _steps, _seen  of views: the tensor that owns the memory, the rows that lead from it to
                 the view (None: it was made under ``no_grad``), and the ``storage.history`` for
                 which ``_node`` is right; see ``views``
    _turned      whether it is a view only of itself, in the shape that it had
    _partial     whether part of the memory of a view is not in its history until it is written to
    _lent        whether its memory, which is read-only, is copied when it is written to
    _made        why a view cannot be written to while recording, None if it can
    _grad, _accumulator, _hooks, _post_hooks  what only leaves have

Operations are put on the class by the modules above, which import this one.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy import ndarray  # a name of this module: CPython does not cache those of numpy

from functrans._kernels.large import keep_memory
from functrans.errors import name_of
from functrans.extend import AnyArray, Lock, Tracer
from functrans.torch._graph.graph import Storage, Value, is_outer, record
from functrans.torch._graph.levels import forward_edge, is_forward_only
from functrans.torch._graph.modes import state, unusual
from functrans.torch._graph.nodes import (
    AccumulateGrad,
    Edge,
    InferenceStorage,
    Node,
    RemovableHandle,
    Retaining,
    shown,
)
from functrans.torch._graph.overriding import Overriding
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import empty_like
from functrans.torch._tensors.facts import Facts

# Guards the addition of one gradient to a leaf against another thread's.
_adding = Lock()


class Tensor(Facts, Retaining, Overriding):
    """An array that can be changed in place and whose history is recorded."""

    _array: np.ndarray
    _storage: Storage
    _node: Node | None = None
    _index = 0
    _requires = False
    _base: Tensor | None = None
    _steps: tuple | None = ()
    _made: str | None = None
    _turned = _partial = _lent = False
    _seen = 0
    _grad: Tensor | None = None
    _accumulator: Callable[[], Node | None] | None = None
    _hooks: dict | None = None
    _post_hooks: dict | None = None

    __array_priority__ = 1000  # ndarray + tensor is ours
    __hash__ = object.__hash__

    if TYPE_CHECKING:
        # put on the class by functrans.torch, from modules above this one

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __iter__(self) -> Iterator[Tensor]: ...

    def __new__(cls, *data: Any) -> Self:
        t = object.__new__(cls)
        array = np.empty(0, dtypes.default_float())
        if len(data) == 1 and not isinstance(data[0], int):
            array = np.array(as_array(data[0]), dtypes.default_float())
        elif data:
            array = np.empty(data, dtypes.default_float())
        t._array, t._storage = array, Storage()
        return t

    # ---- its place in the graph

    @property
    def requires_grad(self) -> bool:
        """Whether operations on it are recorded."""
        if self._base is not None:
            edge_of(self)
            if self._base._requires or self._base._node is not None:
                return True  # as far as writing to it goes
        return self._requires or (self._node is not None and not is_forward_only(self._node))

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        self.requires_grad_(flag)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool: it cannot be deleted")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Begin recording what is done with this leaf, or stop."""
        if not self.is_leaf:
            if self.requires_grad and requires_grad:
                return self
            if requires_grad:
                raise RuntimeError(
                    "requires_grad_: this tensor was computed inside no_grad and has a tangent; "
                    "call it on a detach(), which has none"
                )
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a "
                "computed variable in a subgraph that doesn't require differentiation use "
                "var_no_grad = var.detach()."
            )
        if requires_grad and self._inference and not state.inference:
            raise RuntimeError(
                "Setting requires_grad=True on inference tensor outside InferenceMode is not "
                "allowed. Use a clone()."
            )
        if requires_grad and not dtypes.is_differentiable(self._array.dtype):
            raise RuntimeError(
                "only Tensors of floating point dtype can require gradients, or complex, and this "
                f"one is {self.dtype}"
            )
        self._requires = bool(requires_grad)
        if unusual and state.batch is not None and requires_grad:
            state.batch.own.add(edge_of(self)[0])  # type: ignore[index]  # it is a leaf
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether it was made by the user: it has no ``grad_fn``."""
        if self._base is not None:
            edge_of(self)
        return self._node is None

    @property
    def grad_fn(self) -> Node | None:
        """The node of the operation that made it; None for leaves."""
        if self._base is not None:
            edge_of(self)
        return shown(self._node)

    @property
    def output_nr(self) -> int:
        return self._index

    @property
    def grad(self) -> Tensor | None:
        """The gradient that ``backward`` has accumulated so far."""
        if self._grad is None and self._node is not None and not self.retains_grad:
            warnings.warn(
                "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its "
                ".grad attribute won't be populated during autograd.backward(). Call "
                ".retain_grad() on it before, or read the .grad of a leaf.", UserWarning,
                stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, new: Tensor | None) -> None:
        if new is not None:
            if not isinstance(new, Tensor) and not getattr(new, "is_sparse", False):
                raise TypeError(
                    "assigned grad expected to be a Tensor or None but got grad of type "
                    f"{type(new).__name__}"
                )
            if new is self:
                raise RuntimeError("can't assign Variable as its own grad")
            if new.shape != self.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(new.shape)}' to a tensor of "
                    f"size '{list(self.shape)}'. Please ensure that the gradient and the tensor "
                    "are the same size"
                )
            if new.dtype != self.dtype:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{new.dtype}' to a tensor with "
                    f"dtype '{self.dtype}'. They must agree; convert it with .to(dtype)."
                )
        self._grad = new

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad)`` whenever its gradient is computed; what it returns replaces it."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if not callable(hook):
            raise TypeError(f"a hook must be callable, not {name_of(hook)}")
        if self._node is not None:
            hooks = self._node.extra().tensor_hooks.setdefault(self._index, {})
        else:
            self._hooks = hooks = {} if self._hooks is None else self._hooks
        return RemovableHandle.enter(hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(tensor)`` whenever ``backward`` has added to the ``grad`` of this leaf."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if not self.is_leaf:
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        self._post_hooks = {} if self._post_hooks is None else self._post_hooks
        return RemovableHandle.enter(self._post_hooks, hook)

    def detach(self) -> Tensor:
        """A tensor on the same memory, without history."""
        if unusual and state.batch is not None:
            state.batch.require_no_outer("detach")
        detached = from_array(self._array, self._storage)
        if self._inference or (unusual and state.inference):
            detached._inference = self._inference
        return detached

    def detach_(self) -> Tensor:
        """Forget its history: this tensor becomes a leaf."""
        if self._base is not None:
            raise RuntimeError("Can't detach views in-place. Use detach() instead.")
        # views keep the history that they have
        self._node, self._index, self._requires = None, 0, False
        return self

    @property
    def data(self) -> Tensor:
        """A tensor on the same memory that is not watched: changes through it are not noticed."""
        if unusual and state.batch is not None:
            state.batch.require_no_outer("data")
        return from_array(self._array)

    @data.setter
    def data(self, new: Tensor) -> None:
        if getattr(new, "is_sparse", False):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have "
                "incompatible tensor type: one is sparse"
            )
        if not isinstance(new, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(new).__name__}")
        if self.requires_grad and not dtypes.is_differentiable(new._array.dtype):
            raise RuntimeError(
                "data set to a tensor that requires gradients must be floating point or complex "
                f"dtype, but it is {new.dtype}"
            )
        # what has saved the old array keeps it, so no gradient is wrong
        self._array = new._array

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    @property
    def _grad_fn(self) -> Node | None:
        return self.grad_fn

    @_grad_fn.deleter
    def _grad_fn(self) -> None:
        raise RuntimeError("Deletion of _grad_fn not allowed. Detach tensor instead!")

    @property
    def _backward_hooks(self) -> dict | None:
        return self._hooks

    @_backward_hooks.setter
    def _backward_hooks(self, hooks: dict | None) -> None:
        self._hooks = hooks

    @_backward_hooks.deleter
    def _backward_hooks(self) -> None:
        raise RuntimeError("Deletion of _backwards_hooks not allowed!")

    # ---- what the engine does to it

    def accumulate(self, ct: Any, create: bool, alone: bool = False) -> None:
        """Add a cotangent to ``grad``, keeping its layout, and call the hooks that wait for it.

        ``alone``: nobody else refers to its memory.
        """
        if ct is not None:
            if ct.dtype is not self._array.dtype:
                ct = ct.astype(self._array.dtype)
            with _adding:
                new = show(ct)
                old = self._grad
                if old is None:
                    if self._array.flags.c_contiguous:
                        array = new._array
                        keep_memory(array)
                        if not (alone and array is ct and array.flags.c_contiguous):
                            array = array.copy()
                    else:
                        array = empty_like(self._array)
                        array[...] = new._array
                    self._grad = from_array(array, None, new._node, new._index)
                elif old.is_sparse:
                    self._grad = old.to_dense() + new
                elif not create:
                    np.add(old._array, new._array, out=old._array, casting="unsafe")
                    old._storage.count("backward")
                else:
                    self._grad = old + new
        for hook in list((self._post_hooks or {}).values()):
            hook(self)

    def __copy__(self) -> Tensor:
        """A leaf on the same memory."""
        copied = from_array(self._array, self._storage)
        copied.__class__ = type(self)
        copied._requires = self.requires_grad
        return copied

    def __deepcopy__(self, memo: dict) -> Tensor:
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment; use detach()"
            )
        copied = from_array(self._array.copy(order="K"))
        copied.__class__ = type(self)
        copied._requires = self._requires
        memo[id(self)] = copied
        if self._grad is not None:
            copied._grad = self._grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _unpickle, (np.array(self._array), self.requires_grad)


def _unpickle(array: np.ndarray, requires: bool) -> Tensor:
    t = from_array(array)
    t._requires = requires
    return t


_new = object.__new__


def from_array(array: Any, storage: Storage | None = None, node: Node | None = None,
               index: int = 0) -> Tensor:
    """A tensor around ``array``, the output ``index`` of ``node``."""
    t = _new(Tensor)
    t._array = array if type(array) is ndarray else as_memory(array)
    # set here although the class has them: CPython reads what an instance has in a fifth of the
    # time, and every operation does
    t._node, t._index, t._base, t._requires = node, index, None, False
    if storage is None:
        t._storage = own = Storage()
        own.version = 0
    else:
        t._storage = storage
    if unusual and state.inference and not state.grad:
        t._inference = True
        if storage is None:
            t._storage = InferenceStorage()
    return t


def as_memory(x: Any) -> Any:
    """``x``, a number or a value that a batch traces, as what a tensor is around."""
    return x if isinstance(x, Tracer) else np.asarray(x)


def edge_of(t: Tensor) -> Edge | None:
    """The place of ``t`` in the graph, None where it does not require gradients."""
    if t._base is not None and t._seen != t._storage.history:
        look_up(t)
    node = t._node
    if node is not None:
        return node, t._index
    if not t._requires:
        return None
    known = t._accumulator
    node = known and known()
    if node is None:
        node = AccumulateGrad(t)
        t._accumulator = weakref.ref(node)  # the node holds the tensor
    return node, 0


def recorded_edge(t: Tensor) -> Edge | None:
    """The place of ``t`` as an operand of what is recorded now."""
    if unusual and state.only_forward:
        return forward_edge(edge_of(t))
    if t._base is None:  # the shortest way
        if t._node is not None:
            return t._node, t._index
        if not t._requires:
            return None
    return edge_of(t)


_SEVERAL = "This view is the output of a function that returns multiple views."


def look_up(t: Tensor) -> None:
    """Find the place of a view whose memory was written through another tensor."""
    base: Any = t._base
    if t._made is not None and t._made.startswith(_SEVERAL) and t._node is not None:
        function = t._node.name().removesuffix("0").removesuffix("Backward")
        raise RuntimeError(
            f"Output {t._index} of {function} is a view and its base or another view of its base "
            f"has been modified inplace. {t._made}Make the view after the change, or of a clone().")
    t._seen = t._storage.history
    t._partial = False
    edge = edge_of(base)
    if t._steps is None:
        if edge is not None:
            t._seen = -1  # the next look will fail too
            raise RuntimeError(
                "a view was made inside no_grad, and its memory has been changed outside of it, so "
                "that its history is not known. Make the view outside, or change it inside."
            )
        return
    if edge is not None and has_moved(base):
        t._seen = -1
        raise RuntimeError(
            "the tensor that this is a view of has been given another shape since, and then been "
            "changed in place, so that the history of the view is not known. Make the view again."
        )
    kept = t.stop_retaining()
    value: Any = Value(base._array, *edge) if edge else Value(base._array, None)
    for prim, params in t._steps:
        args = (value,)
        y = prim.impl(value.primal, **params)
        value = record(prim, args, (value.primal,), y, params, value.owner) if edge else Value(
            y, None)
    t._node, t._index = value.node, value.index
    if kept and edge:
        t.retain_grad()


def has_moved(base: Tensor) -> bool:
    """Whether ``base``, of which there are views, has another shape than when they were made."""
    return base._storage.reshaped or (base._base is not None and not base._requires)


def from_value(x: Any, storage: Storage | None = None) -> Tensor:
    """The tensor that an array, or a value with its place in the graph, stands for."""
    if type(x) is Value and not is_outer(x):
        return from_array(x.primal, storage, x.node, x.index)
    return from_array(x, storage)


def has_history(t: Tensor) -> bool:
    """Whether what is done to ``t`` is recorded, for gradients or for tangents."""
    return t.requires_grad or edge_of(t) is not None


def lift(t: Tensor) -> Value:
    """``t`` with its place in the graph."""
    return _value(t, edge_of(t))


def lift_operand(t: Tensor) -> Value:
    """``t`` as a value that NumPy code runs on, which is recorded."""
    return _value(t, recorded_edge(t))


def _value(t: Tensor, edge: Edge | None) -> Value:
    node, index = edge or (None, 0)
    if unusual and state.batch is not None and edge is not None:
        outside = state.batch.captured_value(t._array, edge, t._storage)
        if outside is not None:
            return outside
    return Value(t._array, node, index, t._storage)


def unwrap(x: Any) -> AnyArray:
    """A tensor as NumPy code takes it: a value while it is recorded, else its array."""
    if not isinstance(x, Tensor):
        return x
    edge = recorded_edge(x) if state.grad else None
    return x._array if edge is None else _value(x, edge)


def lift_variable(t: Tensor) -> AnyArray:
    """``t`` with its place in the graph, its array where it has none."""
    edge = edge_of(t)
    return t._array if edge is None else _value(t, edge)


def as_array(x: Any) -> np.ndarray:
    """The array of a tensor, of nested sequences, of anything else that NumPy takes."""
    if isinstance(x, Tensor):
        return x._array
    if isinstance(x, list | tuple) and any(isinstance(v, Tensor | list | tuple) for v in x):
        return np.array([as_array(v) for v in x])
    return np.asarray(x)


# ---- between what the engine carries and what users see


def show(ct: Any) -> Tensor:
    """A cotangent as users see it: a tensor, conjugated."""
    if ct.dtype.kind == "c":
        ct = np.conjugate(ct)
    return from_value(ct)
