"""``torch.autograd.function``: functions with a derivative of one's own.

>>> from functrans import torch
>>> class Exp(torch.autograd.Function):
...     @staticmethod
...     def forward(ctx, x):
...         y = x.exp()
...         ctx.save_for_backward(y)
...         return y
...
...     @staticmethod
...     def backward(ctx, grad):
...         (y,) = ctx.saved_tensors
...         return grad * y
>>> x = torch.zeros(2, requires_grad=True)
>>> y = Exp.apply(x)
>>> y
tensor([1., 1.], grad_fn=<ExpBackward>)
>>> torch.autograd.grad(y.sum(), x)
(tensor([1., 1.]),)
"""

from __future__ import annotations

import functools
import inspect
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NoReturn

import numpy as np

from functrans.torch._graph.custom import CustomNode, DelayedError, call, fits_outputs
from functrans.torch._graph.dual import tangent_of, with_tangent
from functrans.torch._graph.levels import levels
from functrans.torch._graph.modes import is_grad_enabled, no_grad
from functrans.torch._graph.nodes import RemovableHandle, typename
from functrans.torch._graph.observed import call_observed
from functrans.torch._tensors.dtypes import is_differentiable
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array


class FunctionCtx:
    """The record of one call: ``forward`` writes it, ``backward`` reads it."""

    to_save: tuple = ()
    dirty_tensors: tuple = ()
    non_differentiable: tuple = ()
    materialize_grads = True
    needs_input_grad: tuple = ()
    saved_for_forward: tuple = ()
    forward_mode = False
    _node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``backward``, which reads them as ``saved_tensors``."""
        self.to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for ``jvp``, which reads them as ``saved_tensors``."""
        self.saved_for_forward = tensors

    @property
    def saved_variables(self) -> tuple:
        """Deprecated: the old name of ``saved_tensors``."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning,
                      stacklevel=2)
        return self.saved_tensors

    @property
    def saved_tensors(self) -> tuple:
        """The saved tensors; an error if they were freed, or changed in place since."""
        if self.forward_mode:
            return self.saved_for_forward
        node = self._node and self._node()
        return () if node is None else node.saved_tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs ``forward`` changes in place; it must return them."""
        self.dirty_tensors = args

    def mark_shared_storage(self, *pairs: Any) -> None:
        """Deprecated: shared memory is noticed without it."""
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are automatically "
            "tracked. Note that calls to `set_()` are not tracked", stacklevel=2,
        )

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs have no derivative; ``backward`` receives zeros for them."""
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """Whether ``backward`` receives zeros, or else None, for outputs that nothing used."""
        self.materialize_grads = value


class _HookMixin:
    @staticmethod
    def _register_hook(backward_hooks: Any, hook: Callable) -> tuple[Any, RemovableHandle]:
        """Enter ``hook`` into an ordered dict, made if there is none, and a handle to it."""
        backward_hooks = OrderedDict() if backward_hooks is None else backward_hooks
        return backward_hooks, RemovableHandle.enter(backward_hooks, hook)


class BackwardCFunction(FunctionCtx, _HookMixin):
    """The context of one call: what both methods get first."""

    _forward_cls: Any = None

    def apply(self, *args: Any) -> Any:
        cls = self._forward_cls
        if cls.vjp is Function.vjp:
            return cls.backward(self, *args)
        if cls.backward is not Function.backward:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
                f"should only implement one of them, in {cls.__name__}."
            )
        return cls.vjp(self, *args)

    @property
    def has_jvp(self) -> bool:
        """Whether the function has a ``jvp`` of its own."""
        return self._forward_cls.jvp is not Function.jvp

    def apply_jvp(self, *tangents: Any) -> tuple:
        """The tangents of the results, by the function's own ``jvp``."""
        self.forward_mode = True
        try:
            found = self._forward_cls.jvp(self, *tangents)
        finally:
            self.forward_mode = False
        return found if isinstance(found, tuple) else (found,)


class FunctionMeta(type):
    """Makes, for each class ``Name``, ``NameBackward``: the contexts, and the nodes."""

    def __init__(cls, name: str, bases: tuple, attrs: dict):
        own = {"_forward_cls": cls, "__module__": cls.__module__}
        cls._backward_cls = type(f"{name}Backward", (BackwardCFunction,), own)
        cls._node_cls = type(f"{name}Backward", (CustomNode,), {**own, "__slots__": ()})
        super().__init__(name, bases, attrs)


signature_of = functools.lru_cache(1024)(inspect.signature)


def _legacy(what: str) -> property:
    """An attribute of nodes, which an instance of a function is not."""

    def refuse(self: Any) -> NoReturn:
        raise RuntimeError(
            f"Attribute '{what}' is invalid for this instance of _C._FunctionBase. Accessing this "
            "attribute directly on an instance of autograd.Function is a legacy access pattern "
            "that is no longer supported; it is an attribute of grad_fn."
        )

    return property(refuse)


class FunctionBase:
    """What an instance of a function, which is the legacy way of calling it, answers."""

    metadata, next_functions = _legacy("metadata"), _legacy("next_functions")
    register_hook, register_prehook = _legacy("register_hook"), _legacy("register_prehook")
    name, _do_backward = _legacy("name"), _legacy("_do_backward")


class Function(FunctionBase, FunctionCtx, _HookMixin, metaclass=FunctionMeta):
    """Base of custom functions: static ``forward(ctx, ...)`` and ``backward(ctx, *grads)``.

    Called by ``Name.apply(...)``, with tensors and anything else. ``backward`` gets one gradient
    for each result of ``forward``, None for what is no tensor, and returns one for each argument.
    """

    is_traceable = False
    generate_vmap_rule = False
    _backward_cls: ClassVar[type]
    _node_cls: ClassVar[type]

    def __init__(self, *args: Any, **kwargs: Any):
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all "
            "static, so you should invoke them on the class itself. Instantiating an autograd "
            "function will raise an error in a future version.", DeprecationWarning, stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method, and call "
            f"{type(self).__name__}.apply(...)."
        )

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The operation, run without recording."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        """Fill in the context after ``forward``, which then takes none."""
        raise NotImplementedError("setup_context is not implemented")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """The gradients of the arguments from those of the results."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any) -> Any:
        """Another name for ``backward``."""
        return Function.backward(ctx, *grad_outputs)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the results from those of the arguments; used in forward mode if there.

        Without it the tangent is computed from ``backward``, which must be differentiable then.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        """The results of a batch, and the dimension of each along which it is one."""
        raise NotImplementedError(
            "You must implement the vmap function for custom autograd.Function."
        )

    @classmethod
    def vmap_rule(cls) -> Callable | None:
        """``vmap`` if the class has one of its own."""
        return None if cls.vmap is Function.vmap or cls.generate_vmap_rule else cls.vmap

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call the function, and record the call."""
        if kwargs or cls.setup_context is not Function.setup_context:
            args = cls._positions(args, kwargs)
        return call_observed(cls.__name__, cls._apply, *args)

    @classmethod
    def _positions(cls, args: tuple, kwargs: dict[str, Any]) -> tuple:
        """The arguments of ``forward`` by position; where a context is set up, with defaults."""
        separate = cls.setup_context is not Function.setup_context
        bound = signature_of(cls.forward).bind(*(() if separate else (None,)), *args, **kwargs)
        if bound.kwargs:
            raise TypeError(f"{cls.__name__}.forward has arguments by keyword alone "
                            f"({', '.join(bound.kwargs)}), which apply cannot give it")
        if separate:
            bound.apply_defaults()
        return bound.args if separate else bound.args[1:]

    @classmethod
    def _apply(cls, *args: Any) -> Any:
        ctx = cls._backward_cls()
        if cls.setup_context is Function.setup_context:
            forward: Callable = functools.partial(cls.forward, ctx)
        else:
            forward = functools.partial(cls._set_up, ctx)
        if not levels.dual or not ctx.has_jvp:
            return call(ctx, forward, ctx.apply, cls._node_cls, args)
        # of what the arguments are now: forward may write to them
        tangents = [tangent_of(x) if isinstance(x, Tensor) else None for x in args]
        out = call(ctx, forward, ctx.apply, cls._node_cls, args)
        return cls._with_tangents(ctx, args, tangents, out)

    @classmethod
    def _with_tangents(cls, ctx: Any, args: tuple, tangents: list, out: Any) -> Any:
        """``out`` with the tangents that ``jvp`` returns, if an argument has one."""
        if all(t is None for t in tangents):
            return out
        found = ctx.apply_jvp(*[
            from_array(np.zeros_like(x._array)) if t is None and isinstance(x, Tensor)
            and ctx.materialize_grads else t for t, x in zip(tangents, args, strict=True)])
        outs = out if isinstance(out, tuple) else (out,)
        fits_outputs(cls.__name__, found, outs)
        if not isinstance(out, tuple):
            return out if found[0] is None else with_tangent(out, found[0])
        return tuple([with_tangent(y, y.detach() * 0 if t is None else t)
                      if isinstance(y, Tensor) and is_differentiable(y._array.dtype) else y
                      for y, t in zip(out, found, strict=True)])

    @classmethod
    def _set_up(cls, ctx: Any, *args: Any) -> Any:
        output = cls.forward(*args)
        cls.setup_context(ctx, args, output)
        return output


_ContextMethodMixin = FunctionCtx
_TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"


def once_differentiable(fn: Callable) -> Callable:
    """Decorator of a ``backward`` that is not itself recorded: differentiating it is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *args: Any) -> Any:
        with no_grad():
            outputs = fn(ctx, *args)
        if not is_grad_enabled():
            return outputs
        node = ctx._node and ctx._node()
        edges = [edge_of(x) for x in args if isinstance(x, Tensor)]
        edges += node.edges if node is not None else []
        many = isinstance(outputs, tuple | list)
        sealed = [
            from_array(t._array, t._storage, DelayedError(edges, _TWICE))
            if isinstance(t, Tensor) else t
            for t in (outputs if many else (outputs,))
        ]
        return tuple(sealed) if many else sealed[0]

    return wrapper


def traceable(fn_cls: type) -> type:
    """Mark a function as fit for tracing; nothing here depends on it."""
    fn_cls.is_traceable = True  # type: ignore[attr-defined]  # as torch does
    return fn_cls


class InplaceFunction(Function):
    """A function that can work in place: ``inplace`` says whether it shall."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


# ---- nested inputs and outputs


def _unknown(obj: Any, condition_msg: str | None) -> ValueError:
    message = f"Auto nesting doesn't know how to process an input object of type {typename(obj)}"
    if condition_msg:
        message += f". Accepted types: {condition_msg}, or lists/tuples of them"
    return ValueError(message)


def _rebuilt(proto: Any, items: Any) -> Any:
    """``items`` in a list, tuple or named tuple like ``proto``."""
    return type(proto)(*items) if hasattr(proto, "_fields") else type(proto)(items)


def _nested_map(condition: Callable, fn: Callable, condition_msg: str | None = None) -> Callable:
    """A function that applies ``fn`` to what meets ``condition`` inside lists, tuples, dicts."""

    def mapped(obj: Any) -> Any:
        if condition(obj):
            return fn(obj)
        if obj is None:
            return None
        if isinstance(obj, list | tuple):
            return _rebuilt(obj, [mapped(x) for x in obj])
        if isinstance(obj, dict):
            return {k: mapped(x) for k, x in obj.items()}
        raise _unknown(obj, condition_msg)

    return mapped


def _jit_unwrap_structured(obj: Any) -> Any:
    return obj._jit_unwrap() if hasattr(obj, "_jit_unwrap") else obj


def _iter_filter(condition: Callable, allow_unknown: bool = False,
                 condition_msg: str | None = None, conversion: Callable | None = None) -> Callable:
    """A function that yields what meets ``condition`` inside lists, tuples and dicts."""

    def items(obj: Any) -> Iterator:
        obj = obj if conversion is None else conversion(obj)
        if condition(obj):
            yield obj
        elif isinstance(obj, list | tuple):
            for x in obj:
                yield from items(x)
        elif isinstance(obj, dict):
            for x in obj.values():
                yield from items(x)
        elif allow_unknown and obj is not None:
            yield obj
        elif obj is not None:
            raise _unknown(obj, condition_msg)

    return items


def _unflatten(input: Any, proto: Any) -> Any:
    """The items of ``input``, in order, in the nesting of ``proto``."""
    return _fill(iter(input), proto)


def _fill(items: Iterator, proto: Any) -> Any:
    if hasattr(proto, "_jit_wrap"):
        return proto._jit_wrap(list(items))
    if proto is None:
        return None
    if isinstance(proto, list | tuple):
        return _rebuilt(proto, [_fill(items, p) for p in proto])
    if isinstance(proto, dict):
        return {k: _fill(items, p) for k, p in proto.items()}
    return next(items)


def _is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


class JitValue:
    """A value in a program of the JIT, of which there are none."""


_iter_jit_values = _iter_filter(lambda o: o is None or isinstance(o, JitValue),
                                condition_msg="jit's Values or None")
_map_tensor_data = _nested_map(_is_tensor, lambda o: o.data, condition_msg="Tensors")
_iter_tensors = _iter_filter(_is_tensor, condition_msg="Tensors",
                             conversion=_jit_unwrap_structured)
_iter_tensors_permissive = _iter_filter(_is_tensor, allow_unknown=True,
                                        condition_msg="Tensors (permissive)")
_iter_None_tensors = _iter_filter(lambda o: o is None or isinstance(o, Tensor),
                                  condition_msg="Tensors or None")
# the nesting alone: True stands for a tensor, so that nothing is kept alive
_nesting = _nested_map(_is_tensor, lambda o: True, condition_msg="Tensors")
_entries = _iter_filter(lambda o: o is None or o is True)


class NestedIOFunction(Function):
    """A function of an older kind, whose inputs and outputs may be nested, called as an instance.

    A subclass has ``forward_extended(self, *inputs)`` and ``backward_extended(self, *grads)``,
    and is itself the context.
    """

    def _do_forward(self, *input: Any) -> Any:
        self._nested_input = input
        flat = tuple(_iter_tensors(input))
        kind: Any = type(self)
        out = call(self, self.forward, self.backward, kind._node_cls, flat)
        return _unflatten(out, self._nested_output)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._do_forward(*args)

    # instance methods where Function has static ones
    def forward(self, *args: Any) -> tuple:  # type: ignore[override]
        inputs = self._nested_input
        result = self.forward_extended(*inputs)
        self._nested_input, self._nested_output = _nesting(inputs), _nesting(result)
        return tuple(_iter_tensors(result))

    def backward(self, *gradients: Any) -> tuple:  # type: ignore[override]
        nested = _unflatten(gradients, self._nested_output)
        if not isinstance(nested, tuple | list):
            nested = (nested,)
        flat = list(_iter_None_tensors(self.backward_extended(*nested)))
        inputs = list(_entries(self._nested_input))
        if len(flat) == len(inputs):  # a gradient for each input, also for those that are None
            flat = list(itertools.compress(flat, [x is not None for x in inputs]))
        return tuple(flat)

    def save_for_backward(self, *args: Any) -> None:
        """Keep tensors, possibly nested, for ``backward_extended``."""
        self.to_save = tuple(_iter_tensors(args))
        self._to_save_nested = _nesting(args)

    @property
    def saved_tensors(self) -> Any:
        """The saved tensors, nested as they were saved."""
        return _unflatten(super().saved_tensors, self._to_save_nested)

    def mark_dirty(self, *args: Any, **kwargs: Any) -> None:
        """Say which inputs are changed in place."""
        self.dirty_tensors = tuple(_iter_tensors((args, kwargs)))

    def mark_non_differentiable(self, *args: Any, **kwargs: Any) -> None:
        """Say which outputs have no derivative."""
        self.non_differentiable = tuple(_iter_tensors((args, kwargs)))

    def forward_extended(self, *input: Any) -> Any:
        """The operation, to be defined by the subclass."""
        raise NotImplementedError("forward_extended")

    def backward_extended(self, *grad_output: Any) -> Any:
        """Its derivative, to be defined by the subclass."""
        raise NotImplementedError("backward_extended")


__all__ = [
    "BackwardCFunction", "Function", "FunctionCtx", "FunctionMeta", "InplaceFunction",
    "NestedIOFunction", "once_differentiable", "traceable",
]
