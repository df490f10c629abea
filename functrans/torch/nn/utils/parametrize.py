"""``torch.nn.utils.parametrize``: parameters that are functions of others.

A parametrised module is of a class of its own, in which the parameter is a property; what it is
computed from is in ``module.parametrizations[name]``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.containers import ModuleDict, ModuleList
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

_M = TypeVar("_M", bound=Module)


class _Cache(threading.local):
    """Of this thread: how many ``cached`` are open, and what was computed inside."""

    depth = 0

    def __init__(self) -> None:
        self.values: dict[tuple, Tensor] = {}


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Inside, a parametrised parameter is computed once, when it is first read."""
    _cache.depth += 1
    try:
        yield
    finally:
        _cache.depth -= 1
        if not _cache.depth:
            _cache.values.clear()


class ParametrizationList(ModuleList):
    """The parametrisations of one parameter, and in ``original`` what they start from.

    Where the first takes several tensors these are ``original0``, ``original1``, ...
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        super().__init__(modules)
        self.unsafe = unsafe
        self.shape = original.shape
        start: Any = original
        with no_grad():
            for module in reversed(list(modules)):
                if hasattr(module, "right_inverse"):
                    start = module.right_inverse(start)
        self.is_tensor = isinstance(start, Tensor)
        self.ntensors = 1 if self.is_tensor else len(start)
        for name, t in zip(self.names(), [start] if self.is_tensor else start, strict=True):
            self._enter(name, t, original)

    def names(self) -> list[str]:
        """The names of what it starts from."""
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def _enter(self, name: str, t: Tensor, original: Tensor) -> None:
        if not isinstance(original, Parameter):
            self.register_buffer(name, t)
        elif self.is_tensor:
            original.data = t.data
            self.register_parameter(name, original)
        else:
            self.register_parameter(name, Parameter(t.detach(), original.requires_grad))

    def _through(self, modules: Sequence[Any]) -> Tensor:
        first, *rest = modules
        y = first(*[getattr(self, name) for name in self.names()])
        for module in rest:
            y = module(y)
        return y

    def forward(self) -> Tensor:
        return self._through(list(self))

    def right_inverse(self, value: Tensor) -> None:
        """Set what it starts from, so that the parameter becomes ``value``."""
        with no_grad():
            start: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not "
                                       "implement right_inverse.")
                start = module.right_inverse(start)
            starts = [start] if self.is_tensor else start
            for name, t in zip(self.names(), starts, strict=True):
                getattr(self, name).copy_(t)


def _property(name: str) -> property:
    def get(self: Module) -> Tensor:
        if not _cache.depth:
            return self.parametrizations[name]()
        key = id(self), name
        if key not in _cache.values:
            _cache.values[key] = self.parametrizations[name]()
        return _cache.values[key]

    def put(self: Module, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def register_parametrization(module: _M, tensor_name: str, parametrization: Module, *,
                             unsafe: bool = False) -> _M:
    """Let a parameter or buffer be what ``parametrization`` computes from one or several others.

    Its ``right_inverse``, if it has one, computes these from the present value.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        module.parametrizations[tensor_name].append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a "
                         f"parametrized element with name '{tensor_name}'")
    original = getattr(module, tensor_name)
    shape = original.shape
    parts = ParametrizationList([parametrization], original, unsafe)
    if not unsafe:
        with no_grad():
            found = parts().shape
        if found != shape:
            raise ValueError(
                "A parametrization may not change the shape of a tensor, unless the "
                f"`unsafe` flag is enabled.\n{tensor_name}.shape: {shape}, parametrized: {found}")
    delattr(module, tensor_name)
    if not is_parametrized(module):
        kind = type(module)
        module.__class__ = type(f"Parametrized{kind.__name__}", (kind,),  # type: ignore[assignment]
                                {"__module__": kind.__module__, "_unparametrized": kind})
        module.add_module("parametrizations", ModuleDict())
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = parts
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether some parameter of the module, or that of a name, is parametrised."""
    parts = module._modules.get("parametrizations")
    if not isinstance(parts, ModuleDict) or not len(parts):
        return False
    return tensor_name is None or tensor_name in parts


def remove_parametrizations(module: _M, tensor_name: str, leave_parametrized: bool = True) -> _M:
    """Let a parameter be one again, of its present value or else of that it was computed from."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    parts = module.parametrizations[tensor_name]
    if not leave_parametrized and not parts.is_tensor:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that "
                         "is parametrized in terms of a sequence of tensors.")
    value = getattr(module, tensor_name).detach() if leave_parametrized else parts.original
    original = parts.original if parts.is_tensor else Parameter(value)
    if isinstance(original, Parameter):
        original.data = value.data
    del module.parametrizations[tensor_name]
    delattr(type(module), tensor_name)
    if isinstance(original, Parameter):
        module.register_parameter(tensor_name, original)
    else:
        module.register_buffer(tensor_name, value)
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
        module.__class__ = type(module)._unparametrized  # type: ignore[attr-defined]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that the module had."""
    return getattr(type(module), "_unparametrized", type(module))


__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization",
    "remove_parametrizations", "type_before_parametrizations",
]
