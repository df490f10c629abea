"""Weights that are computed from others before each call: ``weight_norm``, ``spectral_norm``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from functrans.torch._functions import algebra
from functrans.torch._functions.table import NN
from functrans.torch._graph.modes import no_grad
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn._functions.natives import norm_except_dim
from functrans.torch.nn.modules import LAYERS
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

_M = TypeVar("_M", bound=Module)
normalize: Callable = NN["normalize"]
mv: Callable = algebra.mv
randn: Callable = vars(factories)["randn"]


def scaled(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """g v / |v|."""
    return v * (g / norm_except_dim(v, 2, dim))


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """``weight`` with dimension ``dim`` for rows."""
    return (weight.transpose(0, dim) if dim else weight).reshape(weight.shape[dim], -1)


def power_iteration(matrix: Tensor, u: Tensor, v: Tensor, n: int, eps: float) -> None:
    """Bring ``u`` and ``v`` nearer to the first singular vectors, in place."""
    with no_grad():
        for _ in range(n):
            u.copy_(normalize(mv(matrix, v), dim=0, eps=eps))
            v.copy_(normalize(mv(matrix.t(), u), dim=0, eps=eps))


def normalised(weight: Tensor, u: Tensor, v: Tensor, dim: int, n: int, eps: float) -> Tensor:
    """W / s for the greatest singular value s, after ``n`` more iterations of its vectors."""
    matrix = as_matrix(weight, dim)
    power_iteration(matrix, u, v, n, eps)
    return weight / u.clone().dot(mv(matrix, v.clone()))


def checked_count(n_power_iterations: int) -> int:
    """The number of iterations at each step, if it is one."""
    if n_power_iterations <= 0:
        raise ValueError("Expected n_power_iterations to be positive, but got "
                         f"n_power_iterations={n_power_iterations}")
    return n_power_iterations


def first_vectors(matrix: Tensor, n: int, eps: float) -> tuple[Tensor, Tensor]:
    """Approximate first singular vectors, by ``n`` iterations from random ones."""
    u, v = [normalize(randn(k, dtype=matrix.dtype), dim=0, eps=eps) for k in matrix.shape]
    power_iteration(matrix, u, v, n, eps)
    return u, v


def default_dim(module: Module) -> int:
    """The dimension of outputs of a layer's weight."""
    transposed = tuple([LAYERS[f"ConvTranspose{n}d"] for n in (1, 2, 3)])
    return int(isinstance(module, transposed))


class _Hook:
    """Sets a weight before each call; ``parts`` are its parameters' and buffers' suffixes."""

    def __init__(self, name: str, dim: int):
        self.name, self.dim = name, dim

    def compute(self, module: Module) -> Tensor:
        raise NotImplementedError(type(self).__name__)

    def __call__(self, module: Module, inputs: Any = ()) -> None:
        setattr(module, self.name, self.compute(module))


class WeightNorm(_Hook):
    """g v / |v| for parameters ``name_g`` and ``name_v``."""

    def compute(self, module: Module) -> Tensor:
        g, v = [getattr(module, self.name + end) for end in ("_g", "_v")]
        return scaled(v, g, self.dim)


class SpectralNorm(_Hook):
    """W / s for the greatest singular value s, of which a power iteration keeps track."""

    def __init__(self, name: str, dim: int, n: int, eps: float):
        super().__init__(name, dim)
        self.n_power_iterations, self.eps = n, eps

    def compute(self, module: Module) -> Tensor:
        weight, u, v = [getattr(module, self.name + end) for end in ("_orig", "_u", "_v")]
        n = self.n_power_iterations if module.training else 0
        return normalised(weight, u, v, self.dim, n, self.eps)


def weight_norm(module: _M, name: str = "weight", dim: int | None = 0) -> _M:
    """Let a weight be g v / |v|, of parameters ``weight_g`` and ``weight_v``."""
    warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
                  "`torch.nn.utils.parametrizations.weight_norm`.", FutureWarning, stacklevel=2)
    hook = WeightNorm(name, -1 if dim is None else dim)
    _refuse_second(module, WeightNorm, name)
    weight = module._parameters.pop(name)
    size = norm_except_dim(weight, 2, hook.dim).detach()  # type: ignore[arg-type]  # it is there
    module.register_parameter(f"{name}_g", Parameter(size))
    module.register_parameter(f"{name}_v", Parameter(weight.data))
    return _hook(module, hook)


def spectral_norm(module: _M, name: str = "weight", n_power_iterations: int = 1,
                  eps: float = 1e-12, dim: int | None = None) -> _M:
    """Let a weight be divided by its greatest singular value."""
    hook = SpectralNorm(name, default_dim(module) if dim is None else dim,
                        checked_count(n_power_iterations), eps)
    _refuse_second(module, SpectralNorm, name)
    weight = module._parameters.pop(name)
    u, v = first_vectors(as_matrix(weight.detach(), hook.dim), 15, eps)
    module.register_parameter(f"{name}_orig", weight)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    return _hook(module, hook)


def _hook(module: _M, hook: _Hook) -> _M:
    setattr(module, hook.name, hook.compute(module).detach())
    module.register_forward_pre_hook(hook)
    return module


def _refuse_second(module: Module, kind: type, name: str) -> None:
    if any(isinstance(h, kind) and h.name == name for h, _ in module._forward_pre_hooks.values()):
        raise RuntimeError(f"Cannot register two {kind.__name__} hooks on the same parameter "
                           f"{name}")


def _remove(module: _M, kind: type[_Hook], name: str, ends: tuple) -> _M:
    for key, (hook, _) in list(module._forward_pre_hooks.items()):
        if isinstance(hook, kind) and hook.name == name:
            with no_grad():
                weight = hook.compute(module)
            delattr(module, name)
            for end in ends:
                delattr(module, name + end)
            module.register_parameter(name, Parameter(weight.detach()))
            del module._forward_pre_hooks[key]
            return module
    what = "weight_norm" if kind is WeightNorm else "spectral_norm"
    raise ValueError(f"{what} of '{name}' not found in {module}")


def remove_weight_norm(module: _M, name: str = "weight") -> _M:
    """Let a weight be a parameter again."""
    return _remove(module, WeightNorm, name, ("_g", "_v"))


def remove_spectral_norm(module: _M, name: str = "weight") -> _M:
    """Let a weight be a parameter again."""
    return _remove(module, SpectralNorm, name, ("_orig", "_u", "_v"))
