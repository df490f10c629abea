"""What a workload needs of a library: its namespace, its derivatives, its own best functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

import functrans as ft

Function = Callable[..., Any]
Thunk = Callable[[], Any]


class Library:
    """Functrans, called op by op; the peers differ in what they override."""

    name = "functrans"
    compiled: ClassVar[bool] = False
    numpy: Any = np

    def __init__(self, dtype: str = "float64"):
        self.dtype = dtype

    def own(self, a: np.ndarray) -> Any:
        """A constant or an argument as the library's array, floats in the workload's precision."""
        return a.astype(self.dtype) if a.dtype.kind == "f" else a

    def compile(self, f: Function) -> Function:
        return f

    def ready(self, y: Any) -> Any:
        return y

    # ---- derivatives: each a call without arguments

    def value(self, f: Function, args: Sequence[Any]) -> Thunk:
        f = self.compile(f)
        return lambda: self.ready(f(*args))

    def gradient(self, f: Function, args: Sequence[Any]) -> Thunk:
        return self.value(self._grad(f, tuple(range(len(args)))), args)

    def second(self, f: Function, args: Sequence[Any]) -> Thunk:
        first = self._grad(f, 0)
        return self.value(self._grad(lambda x: self.numpy.sum(first(x)), 0), args)

    def hessian(self, f: Function, args: Sequence[Any]) -> Thunk:
        return self.value(ft.hessian(f), args)

    def jacobian(self, f: Function, args: Sequence[Any]) -> Thunk:
        return self.value(ft.jacobian(f), args)

    def forward(self, f: Function, args: Sequence[Any]) -> Thunk:
        """The Jacobian by forward mode."""
        return self.value(ft.jacobian(f, mode="forward"), args)

    def gradients(self, f: Function, args: Sequence[Any]) -> Thunk:
        """The gradient at each row of the argument."""
        return self.value(ft.vmap(ft.grad(f)), args)

    def jacobians(self, f: Function, args: Sequence[Any]) -> Thunk:
        """The Jacobian by the first argument, at each row of all."""
        return self.value(ft.vmap(ft.jacobian(f)), args)

    def _grad(self, f: Function, argnums: Any) -> Function:
        return ft.grad(f, argnums)

    # ---- functions that the libraries spell differently

    def logsumexp(self, x: Any, axis: int) -> Any:
        return np.logaddexp.reduce(x, axis=axis)

    def cross_entropy(self, scores: Any, labels: Any) -> Any:
        rows = self.own(np.arange(len(labels)))
        return self.numpy.mean(self.logsumexp(scores, 1) - scores[rows, labels])

    def convolve(self, x: Any, kernel: Any) -> Any:
        return self.numpy.convolve(x, kernel)

    def repeat(self, x: Any, n: int) -> Any:
        return self.numpy.repeat(x, n)

    def std(self, x: Any) -> Any:
        return self.numpy.std(x)

    def add_from(self, x: Any, start: int, v: Any) -> Any:
        return x.at[start:].add(v)

    def softplus(self, x: Any) -> Any:
        return self.numpy.logaddexp(0.0, x)


class Compiled(Library):
    name, compiled = "functrans jit", True

    def compile(self, f):
        return ft.jit(f)


class Torch(Library):
    name = "torch"

    def __init__(self, dtype="float64"):
        super().__init__(dtype)
        self.numpy = importlib.import_module("torch")

    def own(self, a):
        return self.numpy.from_numpy(np.array(super().own(a)))

    def gradient(self, f, args):
        points = [a.clone().requires_grad_() for a in args]
        return lambda: self.numpy.autograd.grad(f(*points), points)

    def second(self, f, args):
        torch, x = self.numpy, args[0].clone().requires_grad_()

        def second():
            (first,) = torch.autograd.grad(f(x), x, create_graph=True)
            return torch.autograd.grad(first.sum(), x)[0]

        return second

    def hessian(self, f, args):
        return self.value(self.numpy.func.hessian(f), args)

    def jacobian(self, f, args):
        return self.value(self.numpy.func.jacrev(f), args)

    def forward(self, f, args):
        return self.value(self.numpy.func.jacfwd(f), args)

    def gradients(self, f, args):
        return self.value(self.numpy.func.vmap(self.numpy.func.grad(f)), args)

    def jacobians(self, f, args):
        return self.value(self.numpy.func.vmap(self.numpy.func.jacrev(f)), args)

    def logsumexp(self, x, axis):
        return self.numpy.logsumexp(x, axis)

    def cross_entropy(self, scores, labels):
        return self.numpy.nn.functional.cross_entropy(scores, labels)

    def convolve(self, x, kernel):
        row = self.numpy.nn.functional.conv1d(
            x[None, None], kernel.flip(0)[None, None], padding=len(kernel) - 1)
        return row[0, 0]

    def repeat(self, x, n):
        return self.numpy.repeat_interleave(x, n)

    def std(self, x):
        return self.numpy.std(x, correction=0)

    def add_from(self, x, start, v):
        return self.numpy.cat([x[:start], x[start:] + v])

    def softplus(self, x):
        return self.numpy.nn.functional.softplus(x)


class Autograd(Library):
    name = "HIPS autograd"

    def __init__(self, dtype="float64"):
        super().__init__(dtype)
        self.library = importlib.import_module("autograd")
        self.numpy = importlib.import_module("autograd.numpy")
        self.special = importlib.import_module("autograd.scipy.special")

    def _grad(self, f, argnums):
        return self.library.grad(f, argnums)

    def gradients(self, f, args):
        raise NotImplementedError

    hessian = jacobian = forward = jacobians = gradients  # row by row: seconds, and no contest

    def logsumexp(self, x, axis):
        return self.special.logsumexp(x, axis=axis)

    def convolve(self, x, kernel):
        raise NotImplementedError

    def add_from(self, x, start, v):
        return self.numpy.concatenate([x[:start], x[start:] + v])


class Jax(Library):
    """Compiled. Called op by op it takes 10 to 100 times the time of the others."""

    name, compiled = "jax jit", True

    def __init__(self, dtype="float64"):
        super().__init__(dtype)
        self.library = importlib.import_module("jax")
        self.library.config.update("jax_enable_x64", True)
        self.numpy = importlib.import_module("jax.numpy")

    def own(self, a):
        return self.numpy.asarray(super().own(a))

    def compile(self, f):
        return self.library.jit(f)

    def ready(self, y):
        return self.library.block_until_ready(y)

    def _grad(self, f, argnums):
        return self.library.grad(f, argnums)

    def hessian(self, f, args):
        return self.value(self.library.hessian(f), args)

    def jacobian(self, f, args):
        return self.value(self.library.jacrev(f), args)

    def forward(self, f, args):
        return self.value(self.library.jacfwd(f), args)

    def gradients(self, f, args):
        return self.value(self.library.vmap(self.library.grad(f)), args)

    def jacobians(self, f, args):
        return self.value(self.library.vmap(self.library.jacfwd(f)), args)

    def logsumexp(self, x, axis):
        return self.library.scipy.special.logsumexp(x, axis=axis)


LIBRARIES: tuple[type[Library], ...] = (Library, Torch, Autograd, Compiled, Jax)


def importable() -> list[type[Library]]:
    """The libraries that are installed."""
    there = []
    for cls in LIBRARIES:
        try:
            cls()
        except ImportError:
            continue
        there.append(cls)
    return there
