"""``torch.func``: functions that derive functions of tensors, and nest.

Arguments may be nested lists, tuples and dicts of tensors. Results can be differentiated further in
whatever the function closes over.

>>> from functrans import torch
>>> torch.func.grad(lambda x: (x * x).sum())(torch.ones(2))
tensor([2., 2.])
>>> torch.func.vmap(torch.func.grad(lambda x: x**3))(torch.tensor([1.0, 2.0]))
tensor([ 3., 12.])
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from functrans import tree
from functrans.errors import name_of
from functrans.extend import aval_of
from functrans.torch._batching import vmap
from functrans.torch._functions.shapes import stack
from functrans.torch._graph.dual import as_tensor, pushed, pushed_columns
from functrans.torch._graph.levels import forward_edge, leads_to_leaf, open_level, require_same_size
from functrans.torch._graph.modes import enable_grad, is_grad_enabled, state
from functrans.torch._graph.walk import cotangent_rows_at, cotangents_at
from functrans.torch._tensors.memory import own_copy, take
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array, has_history, show

# those that pass tangents forward
_FORWARD = frozenset({"jvp", "jacfwd", "linearize"})
# how torch's errors call the transforms whose name they do not begin with
_CALLED = {
    "jvp": "jvp(f, primals, tangents)", "jacfwd": "jvp(f, primals, tangents)",
    "vjp": "vjp(f, *primals)", "jacrev": "vjp(f, *primals)", "grad": "grad_and_value(f)(*args)",
    "linearize": "linearize(f, *primals)",
}


class _At:
    """A function at a point: new places in the graph for its inputs, and its outputs."""

    def __init__(self, who: str, func: Callable, args: tuple, argnums: Any, has_aux: bool,
                 kwargs: dict[str, Any]):
        self.who, self.name = who, name_of(func)
        chosen = argnums if isinstance(argnums, tuple | list) else (argnums,)
        for i in chosen:
            if not -len(args) <= i < len(args):
                raise RuntimeError(
                    f"Got argnum={i}, but only {len(args)} positional inputs: {who} of {self.name}"
                )
        self.chosen = [i % len(args) for i in chosen]
        self.single = not isinstance(argnums, tuple | list)
        point = tuple([args[i] for i in self.chosen])
        leaves, self.structure = tree.flatten(point)
        for x in leaves:
            if not isinstance(x, Tensor):
                if who == "jvp":
                    raise RuntimeError(
                        f"{_CALLED[who]}: Expected primals to only contain Tensors, got {type(x)}"
                    )
                raise ValueError(
                    f"Thing passed to transform API must be Tensor, got {type(x)}: {who} of "
                    f"{self.name} derives in it"
                )
        self.places = [self._placed(x) for x in leaves]
        put = dict(zip(self.chosen, tree.unflatten(self.structure, self.places), strict=True))
        self.wanted: list[Any] = [edge_of(x) for x in self.places]
        self.own = [node for node, _ in self.wanted]
        if state.batch is not None:
            state.batch.own.update(self.own)
        self.recorded = is_grad_enabled()
        with open_level(self.own) if who in _FORWARD else nullcontext(), enable_grad():
            out = func(*[put.get(i, x) for i, x in enumerate(args)], **kwargs)
        self.aux = None
        if has_aux:
            if not isinstance(out, tuple) or len(out) != 2:
                raise RuntimeError(
                    f"{_CALLED[who]}: output of function f should be a tuple: (output, aux) if "
                    f"has_aux is True, but {self.name} returned {type(out).__name__}"
                )
            out, self.aux = out
        if who == "grad" and not isinstance(out, Tensor):
            raise RuntimeError(
                f"{_CALLED[who]}: Expected f(*args) to return a Tensor, got {type(out)} from "
                f"{self.name}. Use vjp or jacrev for it."
            )
        self.ys, self.out_structure = tree.flatten(out)
        for y in self.ys:
            if not isinstance(y, Tensor):
                raise RuntimeError(
                    f"{_CALLED[who]}: expected f(*primals) to return only tensors, got unsupported "
                    f"type {type(y)} from {self.name}"
                )
        self.edges: list[Any] = [edge_of(y) for y in self.ys]
        # what is outside needs the graph of the derivative too
        self.create = leads_to_leaf(self.edges, self.own, duals=True)

    @staticmethod
    def _placed(x: Tensor) -> Tensor:
        """``x`` at a place of its own, from which gradients go on to where it comes from."""
        with enable_grad():
            return x.view_as(x) if edge_of(x) is not None else (
                from_array(x._array, x._storage).requires_grad_())

    def values(self) -> Any:
        """The outputs, nested as they were returned."""
        return tree.unflatten(self.out_structure, [self.free(y) for y in self.ys])

    def free(self, y: Any) -> Any:
        """``y`` without the history that leads to no leaf outside."""
        if not isinstance(y, Tensor):
            return y
        edge = edge_of(y)
        if not leads_to_leaf([edge], self.own, duals=True):
            return from_array(y._array, y._storage)
        if self.recorded:
            return y
        hidden = forward_edge(edge) if state.forward else None  # called within no_grad
        node, index = hidden or (None, 0)
        return from_array(y._array, y._storage, node, index)

    def nested(self, derivatives: Sequence[Any]) -> Any:
        """``derivatives``, one for each input, nested as those."""
        found = tree.unflatten(self.structure, list(derivatives))
        return found[0] if self.single else tuple(found)

    def pulled(self, cotangents: Any) -> Any:
        """The product of ``cotangents``, nested as the outputs, with the Jacobian."""
        cts, structure = tree.flatten(cotangents)
        if structure != self.out_structure:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. In {self.who} of {self.name} they are {structure} and "
                f"{self.out_structure}."
            )
        for i, (ct, y) in enumerate(zip(cts, self.ys, strict=True)):
            if ct.shape != y.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{i}] has a shape of {ct.shape} and output"
                    f"[{i}] has a shape of {y.shape}, in {self.who} of {self.name}"
                )
        create = self.create or any(isinstance(c, Tensor) and has_history(c) for c in cts)
        roots = [(e, take(c, create)) for e, c in zip(self.edges, cts, strict=True) if e]
        got = cotangents_at(roots, self.wanted, True, create) if roots else [None] * len(
            self.wanted)
        return self.nested([
            from_array(np.zeros_like(x._array)) if c is None else self.free(own_copy(show(c)))
            for c, x in zip(got, self.places, strict=True)
        ])

    def tangents(self, nested: Any) -> list[Tensor]:
        """Tangents nested as the inputs, each of the shape of its input."""
        ts, structure = tree.flatten(nested)
        if structure != self.structure:
            raise RuntimeError(
                "jvp(f, primals, tangents): Expected primals and tangents to have the same python "
                f"structure: {self.structure} and {structure}"
            )
        for t, x in zip(ts, self.places, strict=True):
            if not isinstance(t, Tensor):
                raise RuntimeError(
                    "jvp(f, primals, tangents): Expected tangents to only contain Tensors, got "
                    f"{type(t)}"
                )
            require_same_size(t, x)
        return ts

    def pushed(self, tangents: Sequence[Tensor]) -> Any:
        """The product of the Jacobian with ``tangents``, nested as the outputs."""
        create = self.create or leads_to_leaf(list(map(edge_of, tangents)), duals=True)
        ts = pushed(self.arrays(), self.wanted, tangents, create)
        return tree.unflatten(self.out_structure, [
            from_array(np.zeros_like(y._array)) if t is None else self.free(t)
            for t, y in zip(ts, self.ys, strict=True)
        ])

    def arrays(self) -> list:
        """The outputs' places and arrays."""
        return [(e, y._array) for e, y in zip(self.edges, self.ys, strict=True)]

    def columns(self) -> list[list[Tensor]]:
        """For each output the Jacobians in each input, in forward mode where nodes allow it."""
        avals = [aval_of(x._array) for x in self.places]
        found = pushed_columns(self.arrays(), self.wanted, avals, self.create)
        if found is None:
            return self.rows()
        return [[from_array(np.zeros((*y.shape, *x.shape), y._array.dtype)) for x in self.places]
                if blocks is None else [self.free(as_tensor(block)) for block in blocks]
                for blocks, y in zip(found, self.ys, strict=True)]

    def rows(self) -> list[list[Tensor]]:
        """For each output the Jacobians in each input, in reverse mode."""
        return [self._block(e, y) for e, y in zip(self.edges, self.ys, strict=True)]

    def _block(self, edge: Any, y: Tensor) -> list[Tensor]:
        shape, n = y._array.shape, y._array.size
        seeds = np.eye(n, dtype=y._array.dtype).reshape(n, *shape)
        cts: list[Any] = [None] * len(self.wanted)
        if edge is not None and n:
            cts = cotangent_rows_at([(edge, seeds)], self.wanted, True, self.create)
        blocks = []
        for ct, x in zip(cts, self.places, strict=True):
            full = (*shape, *x._array.shape)
            blocks.append(from_array(np.zeros(full, x._array.dtype)) if ct is None
                          else self.free(own_copy(show(ct.reshape(full)))))
        return blocks


def grad_and_value(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that returns ``(gradient, value)``, or ``(gradient, (value, aux))``.

    >>> from functrans import torch
    >>> torch.func.grad_and_value(lambda x: (x * x).sum())(torch.ones(2))
    (tensor([2., 2.]), tensor(2.))
    """

    @functools.wraps(func, updated=())
    def derived(*args: Any, **kwargs: Any) -> Any:
        at = _At("grad", func, args, argnums, has_aux, kwargs)
        if at.ys[0].ndim:
            raise RuntimeError(
                "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor "
                f"with {at.ys[0].ndim} dims. Maybe you wanted to use the vjp or jacrev APIs "
                "instead?"
            )
        one = from_array(np.ones_like(at.ys[0]._array))
        gradient = at.pulled(tree.unflatten(at.out_structure, [one]))
        if has_aux:
            return gradient, (at.values(), tree.map(at.free, at.aux))
        return gradient, at.values()

    return derived


def grad(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """The gradient of a function with one number as its result; with ``has_aux``, and the rest."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func, updated=())
    def derived(*args: Any, **kwargs: Any) -> Any:
        gradient, value = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return derived


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """``(func(*primals), pullback)``: the pullback takes cotangents, and returns a tuple."""
    at = _At("vjp", func, primals, tuple(range(len(primals))), has_aux, {})

    def pullback(*cotangents: Any, retain_graph: bool = True, create_graph: Any = None) -> Any:
        return at.pulled(cotangents[0] if len(cotangents) == 1 else cotangents)

    rest = (tree.map(at.free, at.aux),) if has_aux else ()
    return at.values(), pullback, *rest


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False,
        has_aux: bool = False) -> tuple:
    """``(func(*primals), J tangents)``."""
    for what, x in (("primals", primals), ("tangents", tangents)):
        if not isinstance(x, tuple):
            raise RuntimeError(
                f"jvp(f, primals, tangents): Expected {what} to be a tuple. E.g. it should be "
                f"valid to call f(*primals), but got {type(x).__name__}"
            )
    if not primals:
        raise RuntimeError(
            "jvp(f, primals, tangents): Expected primals to contain at least one Tensor."
        )
    at = _At("jvp", func, primals, tuple(range(len(primals))), has_aux, {})
    rest = (tree.map(at.free, at.aux),) if has_aux else ()
    return at.values(), at.pushed(at.tangents(tangents)), *rest


def linearize(func: Callable, *primals: Any) -> tuple:
    """``(func(*primals), pushforward)``: the pushforward takes tangents, and runs nothing again."""
    at = _At("linearize", func, primals, tuple(range(len(primals))), False, {})
    return at.values(), lambda *tangents: at.pushed(at.tangents(tangents))


def jacrev(func: Callable, argnums: Any = 0, *, has_aux: bool = False, chunk_size: Any = None,
           _preallocate_and_copy: bool = False) -> Callable:
    """The Jacobian, nested as the outputs and inside that as the inputs.

    >>> from functrans import torch
    >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """

    return _jacobian("jacrev", _At.rows, func, argnums, has_aux)


def jacfwd(func: Callable, argnums: Any = 0, has_aux: bool = False, *,
           randomness: str = "error") -> Callable:
    """The Jacobian, nested as by ``jacrev``, in forward mode.

    All columns are computed in one pass. A custom function without a ``jvp``, and a checkpoint, can
    only be passed backward; the Jacobian of what contains one is that of ``jacrev``.

    >>> from functrans import torch
    >>> torch.func.jacfwd(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    return _jacobian("jacfwd", _At.columns, func, argnums, has_aux)


def _jacobian(who: str, blocks: Callable[[_At], list], func: Callable, argnums: Any,
              has_aux: bool) -> Callable:
    @functools.wraps(func, updated=())
    def derived(*args: Any, **kwargs: Any) -> Any:
        at = _At(who, func, args, argnums, has_aux, kwargs)
        _require_real(who, "input", at.places)
        _require_real(who, "output", at.ys)
        nested = tree.unflatten(at.out_structure, [_Leaf(at.nested(r)) for r in blocks(at)])
        out = tree.map(lambda leaf: leaf.value, nested)
        return (out, tree.map(at.free, at.aux)) if has_aux else out

    return derived


def _require_real(who: str, what: str, tensors: Sequence[Tensor]) -> None:
    for i, t in enumerate(tensors):
        if t.is_complex():
            raise RuntimeError(
                f"{who}: Expected all {what}s to be real but received complex tensor at flattened "
                f"{what} idx: {i}. Take .real and .imag as two {what}s."
            )


class _Leaf:
    """What stands for one output while Jacobians are nested."""

    def __init__(self, value: Any):
        self.value = value


def hessian(func: Callable, argnums: Any = 0) -> Callable:
    """The Hessian: the Jacobian of the gradient, forward over reverse.

    >>> from functrans import torch
    >>> torch.func.hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacfwd(jacrev(func, argnums), argnums)


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True,
                    strict: bool = False) -> Any:
    """``module(*args, **kwargs)`` with its parameters and buffers replaced by those of a dict.

    Names are those of ``named_parameters``; several dicts are taken together.
    """
    dicts = parameter_and_buffer_dicts
    if not isinstance(dicts, dict | tuple | list):
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(dicts)}"
        )
    named: dict[str, Any] = {}
    for d in (dicts,) if isinstance(dicts, dict) else dicts:
        named.update(d)
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    if strict:
        known = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
        if known != named.keys():
            raise RuntimeError(
                f"Error(s) in reparametrizing for {type(module).__name__}: unexpected key(s) "
                f"{sorted(named.keys() - known)}, missing key(s) {sorted(known - named.keys())}"
            )
    places = [_owner(module, name) for name in named]
    before = [store[key] for store, key in places]
    try:
        for (store, key), new in zip(places, named.values(), strict=True):
            store[key] = new
        return module(*args, **kwargs or {})
    finally:
        for (store, key), old in zip(places, before, strict=True):
            store[key] = old


def _owner(module: Any, name: str) -> tuple[dict[str, Any], str]:
    """The dict that holds a parameter or buffer of a module, and its key there."""
    *path, key = name.split(".")
    for part in path:
        module = getattr(module, part)
    for store in (getattr(module, "_parameters", {}), getattr(module, "_buffers", {}),
                  vars(module)):
        if key in store:
            return store, key
    raise KeyError(f"functional_call: the module has no parameter or buffer {name!r}")


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """``func`` itself: what it writes in place is recorded as a new value anyway.

    ``remove`` is ``"mutations"`` or ``"mutations_and_views"``.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid "
            f'options are:\n     remove="mutations"\n     remove="mutations_and_views"\nGot '
            f"{remove}"
        )
    return functools.wraps(func, updated=())(lambda *args, **kwargs: func(*args, **kwargs))


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of several modules, each stacked along a new first axis."""
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    sides = []
    for names in ("named_parameters", "named_buffers"):
        each = [dict(getattr(m, names)()) for m in models]
        sides.append({name: stack([d[name] for d in each]).detach() for name in each[0]})
    for t in sides[0].values():
        t.requires_grad_()
    return sides[0], sides[1]


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Let normalisations below ``root`` use the batch alone, which may be mapped; returns it."""
    for module in root.modules():
        if hasattr(module, "track_running_stats") and hasattr(module, "running_mean"):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
    "jvp", "linearize", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]
