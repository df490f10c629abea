"""``torch.autograd.functional``: Jacobians, Hessians and products with them, of a function.

Functions take tensors and return a tensor or a tuple of them. ``inputs`` is a tensor or a tuple.
With ``create_graph`` results can be differentiated. With ``strict`` an input that the result does
not depend on is an error, else its derivative is zero.

>>> from functrans import torch
>>> torch.autograd.functional.jacobian(lambda x: x.exp().sum(dim=1), torch.zeros(2, 2))
tensor([[[1., 1.],
         [0., 0.]],
<BLANKLINE>
        [[0., 0.],
         [1., 1.]]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.torch._graph.engine import owned
from functrans.torch._graph.graph import Edge
from functrans.torch._graph.modes import enable_grad
from functrans.torch._graph.walk import cotangent_rows_at, cotangents_at
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, show, take


class _Point:
    """A function at a point: its inputs as it sees them, its outputs, how results are nested."""

    def __init__(self, who: str, func: Callable, inputs: Any, create: bool, strict: bool):
        self.who, self.create, self.strict = who, create, strict
        self.many_in = isinstance(inputs, tuple | list)
        primals = self.tensors(inputs, f"inputs of {who}")
        with enable_grad():
            # copies, so that func may change them in place; what is differentiated is their start
            self.inputs = [
                (x if create and x.requires_grad else x.detach().requires_grad_()).clone()
                for x in primals
            ]
            self.edges: list[Any] = [edge_of(x) for x in self.inputs]
            self.like = [(x._array.shape, x._array.dtype) for x in self.inputs]
            outputs = func(*self.inputs)
        self.many_out = isinstance(outputs, tuple | list)
        self.outputs = self.tensors(outputs, f"outputs of the function given to {who}")
        if strict:
            for i, y in enumerate(self.outputs):
                if not y.requires_grad:
                    raise RuntimeError(
                        f"{who}: output {i} of the user-provided function does not require "
                        "gradients, so it does not depend on any input. This is not allowed in "
                        "strict mode; pass strict=False to get zeros."
                    )

    def tensors(self, values: Any, what: str) -> list[Tensor]:
        items = list(values) if isinstance(values, tuple | list) else [values]
        for i, x in enumerate(items):
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"The {what} must be either a Tensor or a tuple of Tensors, but "
                    f"{f'element {i}' if items is not values and len(items) > 1 else 'the value'} "
                    f"has type {type(x).__name__}"
                )
        return items

    def vector(self, v: Any, of: Sequence[Tensor], what: str) -> list:
        """``v`` as cotangents for ``of``, one each; 1 where it is left out for a single number."""
        if v is None:
            if len(of) != 1 or of[0]._array.size != 1:
                raise RuntimeError(
                    f"{self.who}: the vector v can only be None if {what} is a single Tensor with "
                    "a single element"
                )
            return [np.ones_like(of[0]._array)]
        vs = self.tensors(v, "vector v")
        if len(vs) != len(of):
            raise RuntimeError(
                f"{self.who}: v is a tuple of invalid length: should be {len(of)} but got "
                f"{len(vs)}"
            )
        cts = []
        for i, (t, y) in enumerate(zip(vs, of, strict=True)):
            if t._array.shape != y._array.shape and not t.numel() == y.numel() == 1:
                raise RuntimeError(
                    f"{self.who}: entry {i} of v has invalid size: should be {tuple(y.shape)} but "
                    f"got {tuple(t.shape)}"
                )
            with enable_grad():
                cts.append(take(t.reshape(y.shape).to(y.dtype), self.create))
        return cts

    def single(self) -> None:
        """Require that there is one output of one element, as Hessians need."""
        if self.many_out or self.outputs[0]._array.size != 1:
            returned = "a tuple" if self.many_out else str(tuple(self.outputs[0].shape))
            raise RuntimeError(
                f"The function given to {self.who} should return a single Tensor with a single "
                f"element, but it returned {returned}"
            )

    def gradient(self) -> list[Tensor]:
        """The gradients of the one output, recorded; inputs it does not depend on have zeros."""
        self.single()
        ct = np.ones_like(self.outputs[0]._array)
        cts = _pull(self.outputs, [ct], self.edges, True)
        return self.filled(cts, self.like, "output", recorded=self.strict)

    def filled(self, cts: Sequence, like: Sequence, what: str,
               recorded: bool = False) -> list[Tensor]:
        """``cts`` as tensors, zeros where there are none; an error there in strict mode."""
        out = []
        for i, (ct, aval) in enumerate(zip(cts, like, strict=True)):
            if ct is None and self.strict:
                raise RuntimeError(
                    f"{self.who}: the {what} of the user-provided function is independent of input "
                    f"{i}. This is not allowed in strict mode; pass strict=False to get zeros."
                )
            t = from_array(np.zeros(*aval)) if ct is None else owned(show(ct))
            if self.strict and (self.create or recorded) and not t.requires_grad:
                raise RuntimeError(
                    f"{self.who}: the derivative of the {what} of the user-provided function is "
                    f"independent of input {i}. This is not allowed in strict mode when it is to "
                    "be differentiated."
                )
            out.append(t)
        return out

    def result(self, derivatives: Sequence[Tensor], many: bool) -> tuple:
        """(outputs, ``found``), each nested as given."""
        ys = [y if self.create else y.detach() for y in self.outputs]
        return tuple(ys) if self.many_out else ys[0], tuple(derivatives) if many else derivatives[0]


def _pull(outputs: Sequence[Tensor], cts: Sequence, edges: Sequence[Edge], create: bool) -> list:
    """The cotangents at ``edges``, None where no output depends on them."""
    roots = [
        (edge, ct)
        for edge, ct in zip(map(edge_of, outputs), cts, strict=True) if edge is not None
    ]
    return cotangents_at(roots, edges, True, create) if roots else [None] * len(edges)


def _unknowns(like: Sequence) -> tuple[list[Tensor], list]:
    """Leaves that a derivative is linear in. Ones: a zero would win against infinite slopes."""
    leaves = [from_array(np.ones(*aval)).requires_grad_() for aval in like]
    return leaves, [take(u, True) for u in leaves]


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), v^T J)``; ``v`` may be left out for an output of one element.

    >>> from functrans import torch
    >>> vjp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    at = _Point("vjp", func, inputs, create_graph, strict)
    cts = at.vector(v, at.outputs, "the output of the user-provided function")
    grads = _pull(at.outputs, cts, at.edges, create_graph)
    return at.result(at.filled(grads, at.like, "output"), at.many_in)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), J v)``, by going back twice; ``v`` may be left out for one number.

    >>> from functrans import torch
    >>> jvp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    at = _Point("jvp", func, inputs, create_graph, strict)
    cts = at.vector(v, at.inputs, "the input to the user-provided function")
    like = [(y._array.shape, y._array.dtype) for y in at.outputs]
    us, u_cts = _unknowns(like)
    back = at.filled(_pull(at.outputs, u_cts, at.edges, True), at.like, "output", recorded=True)
    tangents = _pull(back, cts, [edge_of(u) for u in us], create_graph)  # type: ignore[misc]
    return at.result(at.filled(tangents, like, "output"), at.many_out)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), v^T H)`` for a function with one number as its result.

    >>> from functrans import torch
    >>> vhp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    at = _Point("vhp", func, inputs, create_graph, strict)
    grads = at.gradient()
    cts = at.vector(v, at.inputs, "the input to the user-provided function")
    products = _pull(grads, cts, at.edges, create_graph)
    return at.result(at.filled(products, at.like, "jacobian"), at.many_in)


def hvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), H v)``, by going back three times; as ``vhp`` where H is symmetric.

    >>> from functrans import torch
    >>> hvp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    at = _Point("hvp", func, inputs, create_graph, strict)
    grads = at.gradient()
    cts = at.vector(v, at.inputs, "the input to the user-provided function")
    us, u_cts = _unknowns(at.like)
    back = at.filled(_pull(grads, u_cts, at.edges, True), at.like, "jacobian", recorded=True)
    products = _pull(back, cts, [edge_of(u) for u in us], create_graph)  # type: ignore[misc]
    return at.result(at.filled(products, at.like, "jacobian"), at.many_in)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False) -> Any:
    """All partial derivatives: of shape ``output.shape + input.shape``.

    A tuple over the inputs, or over the outputs, or of tuples ``J[output][input]``, where those
    are tuples. ``vectorize``: all rows at once, by ``vmap``, instead of one after the other.

    >>> from functrans import torch
    >>> jacobian(lambda x, y: 2 * x + 3 * y, (torch.zeros(2), torch.zeros(2)))
    (tensor([[2., 0.],
            [0., 2.]]), tensor([[3., 0.],
            [0., 3.]]))
    """
    at = _Point("jacobian", func, inputs, create_graph, strict)
    rows = []
    for y in at.outputs:
        blocks = at.filled(_block(at, y, vectorize), [_both(y, x) for x in at.like], "output")
        rows.append(tuple(blocks) if at.many_in else blocks[0])
    return tuple(rows) if at.many_out else rows[0]


def _both(y: Tensor, x: tuple) -> tuple:
    return (*y._array.shape, *x[0]), x[1]


def _block(at: _Point, y: Tensor, vectorize: bool) -> list:
    """The derivatives of one output in each input, as cotangents; None for no path."""
    shape, n = y._array.shape, y._array.size
    seeds = np.eye(n, dtype=y._array.dtype).reshape(n, *shape)
    if n == 0:
        return [np.zeros(*_both(y, x)) for x in at.like]
    if y.is_complex():
        raise RuntimeError(
            "jacobian: the output of the user-provided function is complex, of which one gradient "
            "is only half the derivative. Take the Jacobians of its .real and its .imag."
        )
    edge = edge_of(y)
    if edge is None:
        return [None] * len(at.edges)
    rows = cotangent_rows_at([(edge, seeds)], at.edges, True, at.create, vectorize)
    return [
        None if ct is None else ct.reshape(_both(y, x)[0])
        for ct, x in zip(rows, at.like, strict=True)
    ]


def hessian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False,
            vectorize: bool = False) -> Any:
    """All second derivatives of a function with one number as its result.

    A tuple of tuples ``H[i][j]`` where ``inputs`` is a tuple.

    >>> from functrans import torch
    >>> hessian(lambda x: x.pow(3).sum(), torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    many = isinstance(inputs, tuple | list)

    def gradient(*xs: Tensor) -> Any:
        at = _Point("hessian", func, xs if many else xs[0], True, strict)
        grads = at.gradient()
        return tuple(grads) if many else grads[0]

    return jacobian(gradient, inputs, create_graph, strict, vectorize)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
