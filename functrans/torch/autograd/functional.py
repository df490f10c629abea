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
from contextlib import nullcontext
from typing import Any

import numpy as np

from functrans.extend import Aval
from functrans.torch._graph.dual import pushed_columns
from functrans.torch._graph.levels import open_level
from functrans.torch._graph.modes import enable_grad, state
from functrans.torch._graph.nodes import Edge
from functrans.torch._graph.walk import cotangent_rows_at, cotangents_at
from functrans.torch._tensors.memory import own_copy, take
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, show


class _Point:
    """A function at a point: its inputs as it sees them, its outputs, how results are nested."""

    def __init__(self, who: str, func: Callable, inputs: Any, create: bool, strict: bool,
                 forward: bool = False):
        self.who, self.create, self.strict = who, create, strict
        if state.batch is not None:
            state.batch.require_no_captured(who)
        self.many_in = isinstance(inputs, tuple | list)
        primals = _tensors(who, inputs, "inputs")
        with enable_grad():
            # copies, so that func may change them in place; what is differentiated is their start
            self.inputs = [
                (x if create and edge_of(x) is not None else x.detach().requires_grad_()).clone()
                for x in primals
            ]
            self.edges: list[Any] = [edge_of(x) for x in self.inputs]
            self.like = [(x._array.shape, x._array.dtype) for x in self.inputs]
            starts = [node for node, _ in self.edges]
            with open_level(starts) if forward else nullcontext():
                outputs = func(*self.inputs)
        self.many_out = isinstance(outputs, tuple | list)
        self.outputs = _tensors(who, outputs, "outputs of the user-provided function")
        if strict:
            for i, y in enumerate(self.outputs):
                if not y.requires_grad:
                    raise RuntimeError(
                        f"Output {i} of the user-provided function does not require gradients. It "
                        f"depends on no input then, which {who} does not allow in strict mode; "
                        "pass strict=False to get zeros."
                    )

    def vector(self, v: Any, of: Sequence[Tensor], many: bool, what: str) -> list:
        """``v`` as cotangents for ``of``, one each; 1 where it is left out for a single number."""
        if v is None:
            if len(of) != 1 or of[0]._array.size != 1:
                raise RuntimeError(
                    f"The vector v can only be None if {what} a single Tensor with a single "
                    f"element; {self.who} needs one here"
                )
            return [np.ones_like(of[0]._array)]
        vs = _tensors(self.who, v, "v")
        if len(vs) != len(of):
            raise RuntimeError(
                (f"v is a tuple of invalid length: should be {len(of)} but got {len(vs)}." if many
                 else "The given v should contain a single Tensor.")
                + f" The v of {self.who} is nested as what it is multiplied with."
            )
        cts = []
        for i, (t, y) in enumerate(zip(vs, of, strict=True)):
            if t._array.shape != y._array.shape and not t.numel() == y.numel() == 1:
                raise RuntimeError(
                    f"{f'Entry {i} in ' if many else ''}v has invalid size: should be {y.shape} "
                    f"but got {t.shape}."
                )
            with enable_grad():
                cts.append(take(t.reshape(y.shape).to(y.dtype), self.create))
        return cts

    def single(self) -> None:
        """Require that there is one output of one element, as Hessians need."""
        if self.many_out:
            raise RuntimeError(
                f"The function given to {self.who} should return a single Tensor, but it returned "
                f"a tuple of {len(self.outputs)}"
            )
        if self.outputs[0]._array.size != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {self.who} should contain a single "
                f"element, but its shape is {tuple(self.outputs[0].shape)}"
            )

    def gradient(self) -> list[Tensor]:
        """The gradients of the one output, recorded; inputs it does not depend on have zeros."""
        self.single()
        ct = np.ones_like(self.outputs[0]._array)
        cts = _pull(self.outputs, [ct], self.edges, True)
        return self.filled(cts, self.like, "The output", recorded=self.strict)

    def pushed(self, outputs: Sequence[Tensor], v: Any, what: str) -> list[Tensor]:
        """The derivatives of ``outputs`` along ``v``, by going back twice."""
        cts = self.vector(v, self.inputs, self.many_in,
                          "the input to the user-provided function is")
        like = [(y._array.shape, y._array.dtype) for y in outputs]
        # what the first is linear in; ones: a zero would win against infinite slopes
        us = [from_array(np.ones(*aval)).requires_grad_() for aval in like]
        back = self.filled(_pull(outputs, [take(u, True) for u in us], self.edges, True),
                           self.like, what)
        products = _pull(back, cts, [edge_of(u) for u in us], self.create)  # type: ignore[misc]
        return self.filled(products, like, what)

    def filled(self, cts: Sequence, like: Sequence, what: str,
               recorded: bool = False) -> list[Tensor]:
        """``cts`` as tensors, zeros where there are none; an error there in strict mode."""
        out = []
        for i, (ct, aval) in enumerate(zip(cts, like, strict=True)):
            if ct is None and self.strict and self.who != "hessian":
                raise RuntimeError(
                    f"{what} of the user-provided function is independent of input {i}. This is "
                    f"not allowed in the strict mode of {self.who}; pass strict=False to get zeros."
                )
            t = from_array(np.zeros(*aval)) if ct is None else own_copy(show(ct))
            if self.strict and recorded and not t.requires_grad:
                raise RuntimeError(
                    "While computing the hessian, found that the jacobian of the user-provided "
                    f"function with respect to input {i} is independent of the input. This is not "
                    f"allowed in the strict mode of {self.who}; pass strict=False to get zeros."
                )
            if self.strict and self.create and not t.requires_grad:
                raise RuntimeError(
                    "The jacobian of the user-provided function is independent of input "
                    f"{i}. This is not allowed in the strict mode of {self.who} when "
                    "create_graph=True."
                )
            out.append(t)
        return out

    def result(self, derivatives: Sequence[Tensor], many: bool) -> tuple:
        """(outputs, ``found``), each nested as given."""
        ys = [y if self.create else y.detach() for y in self.outputs]
        return tuple(ys) if self.many_out else ys[0], tuple(derivatives) if many else derivatives[0]


def _tensors(who: str, values: Any, what: str) -> list[Tensor]:
    """The tensors that ``values`` is, or is a tuple of."""
    items = list(values) if isinstance(values, tuple | list) else [values]
    for i, x in enumerate(items):
        if not isinstance(x, Tensor):
            at = f"value at index {i}" if isinstance(values, tuple | list) else f"given {what}"
            raise TypeError(
                f"The {what} given to {who} must be either a Tensor or a tuple of Tensors but the "
                f"{at} has type {type(x)}."
            )
    return items


def _pull(outputs: Sequence[Tensor], cts: Sequence, edges: Sequence[Edge], create: bool) -> list:
    """The cotangents at ``edges``, None where no output depends on them."""
    roots = [
        (edge, ct)
        for edge, ct in zip(map(edge_of, outputs), cts, strict=True) if edge is not None
    ]
    return cotangents_at(roots, edges, True, create) if roots else [None] * len(edges)


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), v^T J)``; ``v`` may be left out for an output of one element.

    >>> from functrans import torch
    >>> vjp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    at = _Point("vjp", func, inputs, create_graph, strict)
    cts = at.vector(v, at.outputs, at.many_out, "the user-provided function returns")
    grads = _pull(at.outputs, cts, at.edges, create_graph)
    return at.result(at.filled(grads, at.like, "The output"), at.many_in)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), J v)``, by going back twice; ``v`` may be left out for one number.

    >>> from functrans import torch
    >>> jvp(lambda x: x * x, torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    at = _Point("jvp", func, inputs, create_graph, strict)
    return at.result(at.pushed(at.outputs, v, "The output"), at.many_out)


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), v^T H)`` for a function with one number as its result.

    >>> from functrans import torch
    >>> vhp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    at = _Point("vhp", func, inputs, create_graph, strict)
    grads = at.gradient()
    cts = at.vector(v, at.inputs, at.many_in, "the input to the user-provided function is")
    products = _pull(grads, cts, at.edges, create_graph)
    return at.result(at.filled(products, at.like, "The jacobian"), at.many_in)


def hvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False,
        strict: bool = False) -> tuple:
    """``(func(*inputs), H v)``, by going back three times; as ``vhp`` where H is symmetric.

    >>> from functrans import torch
    >>> hvp(lambda x: (x ** 3).sum(), torch.tensor([1.0, 2.0]), torch.ones(2))
    (tensor(9.), tensor([ 6., 12.]))
    """
    at = _Point("hvp", func, inputs, create_graph, strict)
    return at.result(at.pushed(at.gradient(), v, "The jacobian"), at.many_in)


def jacobian(func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False,
             vectorize: bool = False, strategy: str = "reverse-mode") -> Any:
    """All partial derivatives: of shape ``output.shape + input.shape``.

    A tuple over the inputs, or over the outputs, or of tuples ``J[output][input]``, where those
    are tuples. ``vectorize``: all rows at once, by ``vmap``, instead of one after the other.
    ``strategy``: "reverse-mode", or "forward-mode" with ``vectorize``: all columns in one pass
    from the inputs on. The numbers are the same.

    >>> from functrans import torch
    >>> jacobian(lambda x, y: 2 * x + 3 * y, (torch.zeros(2), torch.zeros(2)))
    (tensor([[2., 0.],
            [0., 2.]]), tensor([[3., 0.],
            [0., 3.]]))
    """
    _require_options("jacobian", strict, vectorize, strategy, create_graph)
    forward = strategy == "forward-mode"
    at = _Point("jacobian", func, inputs, create_graph, strict, forward)
    columns = _columns(at) if forward else None
    rows = []
    for k, y in enumerate(at.outputs):
        cts = _block(at, y, vectorize) if columns is None else columns[k]
        blocks = at.filled(cts, [_both(y, x) for x in at.like], f"Output {k}")
        rows.append(tuple(blocks) if at.many_in else blocks[0])
    return tuple(rows) if at.many_out else rows[0]


def _require_options(who: str, strict: bool, vectorize: bool, strategy: str,
                     create_graph: bool) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode", but got '
            f"{strategy!r} in {who}"
        )
    if strict and (vectorize or strategy == "forward-mode"):
        raise RuntimeError(
            f"torch.autograd.functional.{who}: `strict=True` and `vectorized=True`, or a forward "
            "mode, are not supported together. Please either set `strict=False` or "
            "`vectorize=False`."
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            "torch.autograd.functional.jacobian: `create_graph=True` and `strategy="
            "\"forward-mode\"` are not supported together (yet). Please either set "
            "`create_graph=False` or `strategy=\"reverse-mode\"`."
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is"
            "only implemented for `vectorize=True`."
        )


def _construct_standard_basis_for(tensors: Sequence[Tensor],
                                  tensor_numels: Sequence[int]) -> tuple[Tensor, ...]:
    """The rows of the unit matrix of all entries of ``tensors``, cut by tensor."""
    starts = np.cumsum([0, *tensor_numels])
    return tuple([
        from_array(np.eye(int(starts[-1]), n, -int(start), t._array.dtype))
        for t, n, start in zip(tensors, tensor_numels, starts, strict=False)
    ])


# ---- Names that other packages import: how ``inputs`` are taken and results given back


def _as_tuple(inp: Any, arg_name: str | None = None, fn_name: str | None = None) -> tuple:
    """Whether ``inp`` is a tuple of tensors, and the tensors as one."""
    many = isinstance(inp, tuple | list)
    if arg_name is None and fn_name is None:
        return many, tuple(inp) if many else (inp,)
    return many, tuple(_tensors(str(fn_name), inp, str(arg_name)))


def _as_tuple_nocheck(x: Any) -> tuple:
    """``x`` as a tuple."""
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def _grad_preprocess(inputs: Sequence[Any], create_graph: bool, need_graph: bool) -> tuple:
    """What a function is called with: parts of the graph with ``create_graph``, else new leaves."""
    def prepared(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return _grad_preprocess(x, create_graph, need_graph)
        if create_graph:
            return x.view_as(x) if not x.is_sparse else x.clone()
        return x.detach().requires_grad_(need_graph)

    return tuple([prepared(x) for x in inputs])


def _grad_postprocess(inputs: Any, create_graph: bool) -> Tensor | tuple:
    """Nested tensors, without their history unless ``create_graph``."""
    if isinstance(inputs, Tensor):
        return inputs if create_graph else inputs.detach()
    return tuple([_grad_postprocess(x, create_graph) for x in inputs])


def _tuple_postprocess(res: Any, to_unpack: Any) -> object:
    """``res``, or its one entry, as ``to_unpack`` says for each level of nesting."""
    if isinstance(to_unpack, tuple):
        first, second = to_unpack
        if not second:
            res = tuple([x[0] for x in res])
        return res if first else res[0]
    return res if to_unpack else res[0]


def _both(y: Tensor, x: tuple) -> tuple:
    return (*y._array.shape, *x[0]), x[1]


def _columns(at: _Point) -> list[list] | None:
    """The derivatives of each output in each input by forward mode, as cotangents.

    None where part of the way can only be passed backward.
    """
    ys = [(edge_of(y), y._array) for y in at.outputs]
    found = pushed_columns(ys, at.edges, [Aval(*x) for x in at.like], False)
    if found is None:
        return None
    return [[None] * len(at.like) if blocks is None else list(map(np.conjugate, blocks))
            for blocks in found]


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
            vectorize: bool = False, outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """All second derivatives of a function with one number as its result.

    A tuple of tuples ``H[i][j]`` where ``inputs`` is a tuple.

    >>> from functrans import torch
    >>> hessian(lambda x: x.pow(3).sum(), torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    _require_options("hessian", strict, vectorize, outer_jacobian_strategy, create_graph)
    many = isinstance(inputs, tuple | list)
    _tensors("hessian", inputs, "inputs")

    def gradient(*xs: Tensor) -> Any:
        at = _Point("hessian", func, xs if many else xs[0], True, strict)
        grads = at.gradient()
        return tuple(grads) if many else grads[0]

    return jacobian(gradient, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
