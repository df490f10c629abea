"""What is compared: each peer turns ``f(xp, x)``, written once, into calls without arguments.

``xp`` is the peer's own NumPy-like namespace. A peer that cannot be imported is left out and named
in the report.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib import metadata
from typing import Any, ClassVar

import numpy as np

import functrans as ft

Function = Callable[[Any, Any], Any]
Thunk = Callable[[], Any]


class Peer:
    """A differentiator. A method that returns None says: this one cannot do that."""

    name = ""
    module = ""

    def __init__(self) -> None:
        self.library: Any = importlib.import_module(self.module)
        self.version = getattr(self.library, "__version__", "") or _distribution(self.module)

    def gradient(self, f: Function, x: np.ndarray) -> Thunk | None:
        return None

    def second(self, f: Function, x: np.ndarray) -> Thunk | None:
        """The gradient of the sum of the gradient."""
        return None

    def hessian(self, f: Function, x: np.ndarray) -> Thunk | None:
        return None

    def recorder(self, f: Function, x: np.ndarray) -> Callable[[], Thunk] | None:
        """A call that records ``f`` at ``x`` and returns the call that walks back, once."""
        return None


def _distribution(module: str) -> str:
    return metadata.version(module)


class Functrans(Peer):
    name, module = "functrans", "functrans"

    def gradient(self, f, x):
        gradient = ft.grad(lambda x: f(np, x))
        return lambda: gradient(x)

    def second(self, f, x):
        gradient = ft.grad(lambda x: f(np, x))
        second = ft.grad(lambda x: np.sum(gradient(x)))
        return lambda: second(x)

    def hessian(self, f, x):
        hessian = ft.hessian(lambda x: f(np, x))
        return lambda: hessian(x)

    def recorder(self, f, x) -> Callable[[], Thunk] | None:
        def record():
            y, pullback = ft.vjp(lambda x: f(np, x), x)
            seed = np.ones(y.shape)
            return lambda: pullback(seed)[0]

        return record


class FunctransJit(Functrans):
    """The same through ``functrans.jit``, in versions that have it."""

    name = "functrans jit"

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(ft, "jit"):
            raise ImportError("this functrans has no jit")

    def gradient(self, f, x):
        gradient = ft.jit(ft.grad(lambda x: f(np, x)))  # type: ignore[attr-defined]
        return lambda: gradient(x)

    def second(self, f, x):
        first = ft.grad(lambda x: f(np, x))
        second = ft.jit(ft.grad(lambda x: np.sum(first(x))))  # type: ignore[attr-defined]
        return lambda: second(x)

    def hessian(self, f, x):
        hessian = ft.jit(ft.hessian(lambda x: f(np, x)))  # type: ignore[attr-defined]
        return lambda: hessian(x)

    def recorder(self, f, x):
        return None


class Torch(Peer):
    name, module = "torch", "torch"

    def _input(self, x):
        return self.library.tensor(x, requires_grad=True)

    def gradient(self, f, x):
        torch, x = self.library, self._input(x)
        return lambda: torch.autograd.grad(f(torch, x), x)[0]

    def second(self, f, x):
        torch, x = self.library, self._input(x)

        def second():
            (first,) = torch.autograd.grad(f(torch, x), x, create_graph=True)
            return torch.autograd.grad(first.sum(), x)[0]

        return second

    def hessian(self, f, x):
        torch = self.library
        hessian, x = torch.func.hessian(lambda x: f(torch, x)), torch.tensor(x)
        return lambda: hessian(x)

    def recorder(self, f, x):
        torch, x = self.library, self._input(x)

        def record():
            y = f(torch, x)
            return lambda: torch.autograd.grad(y, x, torch.ones_like(y))[0]

        return record


class Autograd(Peer):
    """HIPS autograd."""

    name, module = "HIPS autograd", "autograd"

    def __init__(self) -> None:
        super().__init__()
        self.numpy = importlib.import_module("autograd.numpy")

    def gradient(self, f, x):
        gradient = self.library.grad(lambda x: f(self.numpy, x))
        return lambda: gradient(x)

    def second(self, f, x):
        first = self.library.grad(lambda x: f(self.numpy, x))
        second = self.library.grad(lambda x: self.numpy.sum(first(x)))
        return lambda: second(x)

    def hessian(self, f, x):
        hessian = self.library.hessian(lambda x: f(self.numpy, x))
        return lambda: hessian(x)

    def recorder(self, f, x):
        core = importlib.import_module("autograd.core")

        def record():
            pullback, y = core.make_vjp(lambda x: f(self.numpy, x), x)
            return lambda: pullback(np.ones(np.shape(y)))

        return record


class Mygrad(Peer):
    name, module = "mygrad", "mygrad"

    def gradient(self, f, x):
        def gradient():
            t = self.library.tensor(x)
            f(self.library, t).backward()
            return t.grad

        return gradient


class Jax(Peer):
    """JAX called op by op, as plain Python control flow needs it."""

    name, module = "jax eager", "jax"
    compile: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self.library.config.update("jax_enable_x64", True)
        self.numpy = importlib.import_module("jax.numpy")

    def _ready(self, f, x):
        f, x = (self.library.jit(f) if self.compile else f), self.numpy.asarray(x)
        return lambda: f(x).block_until_ready()

    def gradient(self, f, x):
        return self._ready(self.library.grad(lambda x: f(self.numpy, x)), x)

    def second(self, f, x):
        first = self.library.grad(lambda x: f(self.numpy, x))
        return self._ready(self.library.grad(lambda x: self.numpy.sum(first(x))), x)

    def hessian(self, f, x):
        return self._ready(self.library.hessian(lambda x: f(self.numpy, x)), x)


class JaxJit(Jax):
    name = "jax jit"
    compile = True


PEERS: tuple[type[Peer], ...] = (
    Functrans, FunctransJit, Torch, Autograd, Mygrad, Jax, JaxJit,
)


def available() -> tuple[list[Peer], list[str]]:
    """The peers that can be imported, and a line for each that cannot."""
    found: list[Peer] = []
    missing: list[str] = []
    for cls in PEERS:
        try:
            found.append(cls())
        except ImportError as e:
            missing.append(f"{cls.name}: left out ({e})")
    return found, missing


def by_name(name: str) -> Peer:
    return next(cls() for cls in PEERS if cls.name == name)
