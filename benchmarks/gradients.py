"""One function as each library would have it: its gradient, ready to be called without arguments.

``f(xp, x)`` is written once, ``xp`` being the library's own namespace. Inputs are converted before
the clock starts; a result is whatever the library returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import functrans as ft
from benchmarks.harness import OURS
from benchmarks.peers import anp, autograd, jax, mygrad, torch

Function = Callable[[Any, Any], Any]


def first(f: Function, x: np.ndarray, compiled: bool = True, tape: bool = True) -> dict:
    """The gradient of ``f`` at ``x``. ``compiled``: with jax.jit; ``tape``: with MyGrad."""
    ours = ft.grad(lambda v: f(np, v))
    runs = {OURS: lambda: ours(x)}
    if torch is not None:
        runs["torch"] = _torch_first(f, torch.from_numpy(x.copy()))
    if autograd is not None:
        theirs = autograd.grad(lambda v: f(anp, v))
        runs["autograd"] = lambda: theirs(x)
    if mygrad is not None and tape:
        runs["mygrad"] = _mygrad_first(f, x)
    if jax is not None:
        runs |= _jax(jax.grad(lambda v: f(jax.numpy, v)), x, compiled)
    return runs


def second(f: Function, x: np.ndarray) -> dict:
    """The gradient of the sum of the gradient of ``f``: reverse over reverse."""

    def twice(grad, total, xp):
        return grad(lambda v: total(grad(lambda w: f(xp, w))(v)))

    ours = twice(ft.grad, np.sum, np)
    runs = {OURS: lambda: ours(x)}
    if torch is not None:
        runs["torch"] = _torch_second(f, torch.from_numpy(x.copy()))
    if autograd is not None:
        theirs = twice(autograd.grad, anp.sum, anp)
        runs["autograd"] = lambda: theirs(x)
    if jax is not None:
        runs |= _jax(twice(jax.grad, jax.numpy.sum, jax.numpy), x, True)
    return runs


def hessians(f: Function, x: np.ndarray) -> dict:
    """The Hessian of ``f`` at ``x``."""
    ours = ft.hessian(lambda v: f(np, v))
    runs = {OURS: lambda: ours(x)}
    if torch is not None:
        point = torch.from_numpy(x.copy())
        by_func = torch.func.hessian(lambda v: f(torch, v))
        runs["torch.func"] = lambda: by_func(point)
        runs["torch"] = lambda: torch.autograd.functional.hessian(lambda v: f(torch, v), point)
    if autograd is not None:
        theirs = autograd.hessian(lambda v: f(anp, v))
        runs["autograd"] = lambda: theirs(x)
    if jax is not None:
        runs |= _jax(jax.hessian(lambda v: f(jax.numpy, v)), x, True)
    return runs


def _torch_first(f, point):
    def run():
        x = point.detach().requires_grad_()
        return torch.autograd.grad(f(torch, x), x)[0]

    return run


def _torch_second(f, point):
    def run():
        x = point.detach().requires_grad_()
        (g,) = torch.autograd.grad(f(torch, x), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    return run


def _mygrad_first(f, point):
    def run():
        x = mygrad.tensor(point, copy=False)
        f(mygrad, x).backward()
        return x.grad

    return run


def _jax(function, point, compiled):
    x = jax.numpy.asarray(point)
    runs = {"jax": lambda: function(x).block_until_ready()}
    if compiled:
        staged = jax.jit(function)
        runs["jax.jit"] = lambda: staged(x).block_until_ready()
    return runs
