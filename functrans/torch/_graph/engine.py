"""The walk backward, and the functions that start it: ``backward`` and ``grad``.

Nodes are passed by falling sequence number, newest first, from a heap. All who read an operand are
newer than the node that made it, so that node's cotangent is complete when its turn comes. An
undefined cotangent, None, is passed on too: it counts as zeros for the functions of users. Nothing
recurs: depth is bounded by memory alone. All state is local to a walk, so walks may nest and run in
several threads.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from heapq import heappop, heappush
from typing import Any

import numpy as np

from functrans import vmap
from functrans.extend import cast
from functrans.torch._graph.graph import AccumulateGrad, Edge, Node, quiet
from functrans.torch._graph.modes import state
from functrans.torch._tensors.dtypes import BY_ARRAY_DTYPE, Size
from functrans.torch._tensors.tensor import Tensor, edge_of, made, show, take


class _Walks(threading.local):
    """Of this thread: how many walks are under way, and whether some only computes ``grad``."""

    depth = 0
    partial = 0


walks = _Walks()


def run(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge] | None, retain: bool,
        create: bool) -> list:
    """Carry cotangents from ``roots`` back through the graph.

    Without ``wanted``, to the leaves, whose ``grad`` they are added to. With it, only as far as
    those places, and their cotangents are returned, None where there is no path.
    """
    cts: dict[Node, Any] = {}
    heap: list[tuple[int, Node]] = []
    with state.watch.scope("torch::autograd::GraphRoot") if state.watch else nullcontext():
        for (node, k), ct in roots:
            _add(cts, heap, node, k, ct)
    needed = None if wanted is None else _leading_to(heap, wanted)
    found: dict[tuple, Any] = {} if wanted is None else {edge_key(e): None for e in wanted}
    before, state.grad = state.grad, create
    walks.depth += 1
    try:
        with quiet():
            _walk(cts, heap, needed, found, retain, create)
    finally:
        state.grad = before
        walks.depth -= 1
    return [] if wanted is None else [found[edge_key(e)] for e in wanted]


def pulled(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge], retain: bool,
           create: bool) -> list:
    """The cotangents at ``wanted``, and at no other leaf: what ``grad`` computes."""
    walks.partial += 1
    try:
        return run(roots, wanted, retain, create)
    finally:
        walks.partial -= 1


def pulled_rows(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge], retain: bool,
                create: bool, at_once: bool = True) -> list:
    """``pulled`` for each entry of cotangents that have one more axis in front.

    ``at_once``: in one walk, if all nodes allow it.
    """
    edges = [edge for edge, _ in roots]
    n = roots[0][1].shape[0]
    if at_once and all(node.batches and node.extras is None for node in _reached(edges)):
        def walk(*cts):
            return tuple(pulled(list(zip(edges, cts, strict=True)), wanted, retain, create))

        return list(vmap(walk)(*[ct for _, ct in roots]))
    rows = [
        pulled([(edge, ct[i]) for edge, ct in roots], wanted, retain or i < n - 1, create)
        for i in range(n)
    ]
    return [_stacked(cts) for cts in zip(*rows, strict=True)]


def _stacked(cts: Sequence) -> Any:
    like = next((ct for ct in cts if ct is not None), None)
    if like is None:
        return None
    return np.stack([np.zeros(like.shape, like.dtype) if ct is None else ct for ct in cts])


def _reached(edges: Sequence[Edge]) -> set[Node]:
    """The nodes that a walk from ``edges`` may pass."""
    seen = {node for node, _ in edges}
    stack = list(seen)
    while stack:
        for edge in stack.pop().edges:
            if edge is not None and edge[0] not in seen:
                seen.add(edge[0])
                stack.append(edge[0])
    return seen


def _walk(cts, heap, needed, found, retain, create):
    sums = set()  # nodes whose cotangent is an array made here, which nobody else reads yet
    watch = state.watch
    while heap:
        _, node = heappop(heap)
        ct = cts.pop(node)
        plain = node.extras is None
        if type(node) is AccumulateGrad:
            if plain and needed is None and watch is None:
                leaf = node.variable
                leaf.accumulate(_hooked(leaf._hooks, ct, create) if leaf._hooks else ct, create)
                continue
            ct = _watched(node, ct, create)
        elif not plain:
            ct = _watched(node, ct, create)
        if needed is not None:
            _capture(node, ct, found)
            if node not in needed:
                continue
        if not plain and node.extras is not None and node.extras.post_hooks:
            _between_hooks(node, ct, create, cts, heap, needed, found)
        else:
            if ct is None or type(ct) is list:
                pulled = _pulled(node, ct, create)
            else:
                pulled = node.pull(ct, create) if watch is None else watch.pull(node, ct, create)
            for edge, c in zip(node.edges, pulled, strict=False):
                if edge is None:
                    continue
                parent, k = edge
                if needed is not None and parent not in needed and not _sought(parent, k, found):
                    continue
                if parent.outputs == 1 and c is not None:
                    old = cts.get(parent)
                    if old is None:
                        if parent not in cts:
                            heappush(heap, (parent.seq, parent))
                        cts[parent] = c
                    elif parent in sums and type(c) is np.ndarray and c.dtype is old.dtype:
                        np.add(old, c, old)
                    else:
                        cts[parent] = old = old + c
                        if type(old) is np.ndarray:
                            sums.add(parent)
                else:
                    _add(cts, heap, parent, k, c)
        if not retain:
            node.release()


def _add(cts: dict, heap: list, node: Node, k: int, c: Any) -> None:
    """Add ``c`` to the cotangent of output ``k`` of ``node``; None says only that it is passed."""
    if node not in cts:
        heappush(heap, (node.seq, node))
        cts[node] = None if node.outputs == 1 else [None] * node.outputs
    place, k = (cts, node) if node.outputs == 1 else (cts[node], k)  # type: ignore[assignment]
    if c is not None:
        place[k] = c if place[k] is None else place[k] + c


def _pulled(node: Node, ct: Any, create: bool) -> Sequence:
    """``node.pull``, where there is something to pull or the node asks for what is undefined."""
    undefined = ct is None or (type(ct) is list and all(c is None for c in ct))
    if undefined and not node.takes_undefined:
        return [None] * len(node.edges)
    watch = state.watch
    return node.pull(ct, create) if watch is None else watch.pull(node, ct, create)


def edge_key(edge: Edge) -> tuple:
    """What a place is found by: a leaf may have had several nodes, but it is one."""
    node, k = edge
    return (id(node.variable), 0) if type(node) is AccumulateGrad else (id(node), k)


def _sought(node: Node, k: int, found: dict) -> bool:
    return edge_key((node, k)) in found


def _capture(node: Node, ct: Any, found: dict) -> None:
    if node.outputs == 1:
        key = edge_key((node, 0))
        if key in found and ct is not None:
            found[key] = ct if found[key] is None else found[key] + ct
        return
    for k, c in enumerate(ct):
        key = edge_key((node, k))
        if key in found and c is not None:
            found[key] = c


def _leading_to(heap: list, wanted: Sequence[Edge]) -> set:
    """The nodes from which one of the ``wanted`` places is reached through an operand."""
    sought = {edge_key(e) for e in wanted}
    needed = set()
    reached = _reached([(node, 0) for _, node in heap])
    for node in sorted(reached, key=lambda n: n.seq, reverse=True):  # operands first
        for edge in node.edges:
            if edge is not None and (edge[0] in needed or edge_key(edge) in sought):
                needed.add(node)
                break
    return needed


def _watched(node: Node, ct: Any, create: bool) -> Any:
    """What hooks make of the cotangent that arrives at ``node``, kept where it is retained."""
    extras = node.extras
    if type(node) is AccumulateGrad and node.variable._hooks:
        ct = _hooked(node.variable._hooks, ct, create)
    if extras is None:
        return ct
    cts = [ct] if node.outputs == 1 else list(ct)
    for k, hooks in extras.tensor_hooks.items():
        cts[k] = _hooked(hooks, cts[k], create)
    for k, ref in extras.retaining.items():
        t = ref()
        if t is not None and cts[k] is not None:
            t.accumulate(cts[k], create)
    if extras.pre_hooks:
        for hook in list(extras.pre_hooks.values()):
            new = hook(tuple([None if c is None else show(c) for c in cts]))
            if new is not None:
                cts = _replaced(hook, cts, new, create)
    return cts[0] if node.outputs == 1 else cts


def _hooked(hooks: dict, ct: Any, create: bool) -> Any:
    """``ct`` after the hooks of a tensor, in the order in which they were registered."""
    for hook in list(hooks.values()):
        new = hook(None if ct is None else show(ct))
        if new is not None:
            (ct,) = _replaced(hook, [ct], (new,), create)
    return ct


def _replaced(hook: Any, cts: Sequence, new: Any, create: bool) -> list:
    """The cotangents that the gradients ``new`` stand for, which ``hook`` puts in place of
    ``cts``."""
    new = (new,) if isinstance(new, Tensor) else tuple(new)
    if len(new) != len(cts):
        raise RuntimeError(
            f"the hook {hook!r} has returned {len(new)} gradients, but was given {len(cts)}"
        )
    out = []
    for c, g in zip(cts, new, strict=True):
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(
                f"hooks must return a Tensor or None, but {hook!r} returned {type(g).__name__}"
            )
        if g is not None and c is None:
            raise RuntimeError(
                f"can't replace a None gradient with a non-None value, as the hook {hook!r} does"
            )
        if g is not None and g._array.shape != c.shape:
            raise RuntimeError(
                f"a hook has changed the size of a gradient from {Size(c.shape)} to {g.shape}"
            )
        if g is not None and g._array.dtype != c.dtype:
            raise RuntimeError(
                f"the hook {hook!r} has changed the type of a gradient from "
                f"{BY_ARRAY_DTYPE[c.dtype]} to {g.dtype}; convert it back with .to(grad.dtype)"
            )
        out.append(None if g is None else take(g, create))
    return out


def _between_hooks(node, ct, create, cts, heap, needed, found):
    """Pass a node that has hooks: they see, and may replace, the cotangents of its operands."""
    arrived = [ct] if node.outputs == 1 else ct
    out = list(_pulled(node, ct, create))
    for hook in list(node.extras.post_hooks.values()):
        new = hook(tuple([None if c is None else show(c) for c in out]),
                   tuple([None if c is None else show(c) for c in arrived]))
        if new is not None:
            out = _replaced(hook, out, new, create)
    for edge, c in zip(node.edges, out, strict=False):
        if edge is None or (needed is not None and edge[0] not in needed
                            and not _sought(edge[0], edge[1], found)):
            continue
        _add(cts, heap, edge[0], edge[1], c)


# ---- what users call


def backward(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None,
             create_graph: bool = False, grad_variables: Any = None, inputs: Any = None) -> None:
    """Add the gradients of ``tensors`` to the ``grad`` of the leaves they were computed from.

    ``grad_tensors`` weigh the outputs, and may be left out, or None, where a tensor has one
    element or requires no gradient. ``inputs``: add only there. ``retain_graph``: keep what the
    graph saved, for another backward. ``create_graph``: record the derivative too; the leaf and
    its ``grad`` then hold each other until ``grad`` is set to None.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
    """
    if grad_variables is not None:
        warnings.warn("'grad_variables' is deprecated. Use 'grad_tensors' instead.", stacklevel=2)
        if grad_tensors is not None:
            raise RuntimeError(
                "'grad_tensors' and 'grad_variables' (deprecated) arguments both passed to "
                "backward(). Please only use 'grad_tensors'."
            )
        grad_tensors = grad_variables
    if inputs is not None and not isinstance(inputs, Tensor) and not len(inputs):
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    outputs = as_tuple(tensors)
    retain = create_graph if retain_graph is None else retain_graph
    roots = _roots(outputs, grad_tensors, create_graph)
    if inputs is None:
        run(roots, None, retain, create_graph)
        return
    targets = as_tuple(inputs)
    edges = _places(targets, "backward")
    for t, ct in zip(targets, run(roots, edges, retain, create_graph), strict=True):
        if ct is not None:
            t.accumulate(ct, create_graph)


def grad(outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> tuple:
    """The gradients of ``outputs`` in ``inputs``, a tuple; no ``grad`` is touched.

    ``grad_outputs`` weigh the outputs; with ``is_grads_batched`` they have one more axis in front,
    and so have the results. An input that no output depends on is an error, None with
    ``allow_unused``, zeros with ``materialize_grads``. The rest is as in ``backward``.

    >>> from functrans import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> torch.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To "
            "accumulate gradient for other parts of the graph, please use "
            "torch.autograd.backward.", FutureWarning, stacklevel=2,
        )
    if materialize_grads and allow_unused is False:
        raise ValueError("grad: materialize_grads=True needs allow_unused to be True or left out")
    targets = as_tuple(inputs)
    edges = _places(targets, "grad")
    retain = create_graph if retain_graph is None else retain_graph
    roots = _roots(as_tuple(outputs), grad_outputs, create_graph, is_grads_batched)
    run_from = pulled_rows if is_grads_batched else pulled
    cts = run_from(roots, edges, retain, create_graph)
    out = []
    for i, (t, ct) in enumerate(zip(targets, cts, strict=True)):
        if ct is None and materialize_grads:
            shape = roots[0][1].shape[:1] if is_grads_batched else ()
            out.append(made(np.zeros((*shape, *t._array.shape), t._array.dtype)))
        elif ct is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {i} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior."
            )
        else:
            out.append(None if ct is None else owned(show(ct)))
    return tuple(out)


def owned(t: Tensor) -> Tensor:
    """``t`` on memory that nothing else reads."""
    t._array = np.array(t._array)
    return t


def as_tuple(x: Any) -> tuple:
    return (x,) if isinstance(x, Tensor) else tuple(x)


def _places(targets: Sequence[Tensor], who: str) -> list[Edge]:
    edges = []
    for t in targets:
        if not isinstance(t, Tensor):
            raise TypeError(f"{who}: inputs must be Tensors, but got {type(t).__name__}")
        edge = edge_of(t)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        edges.append(edge)
    return edges


def _roots(outputs: Sequence, grads: Any, create: bool,
           batched: bool = False) -> list[tuple[Edge, Any]]:
    """The outputs' places with the cotangents that the walk starts from."""
    given = [None] * len(outputs) if grads is None else list(as_tuple(grads))
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    roots = []
    for i, (t, g) in enumerate(zip(outputs, given, strict=True)):
        if not isinstance(t, Tensor):
            raise TypeError(f"element {i} of tensors must be a Tensor, not {type(t).__name__}")
        edge = edge_of(t)
        array = t._array
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(
                f"gradients can be either Tensors or None, but got {type(g).__name__}"
            )
        if g is None and batched:
            raise RuntimeError("is_grads_batched=True needs grad_outputs, one for each output")
        if g is None:
            if edge is None and len(outputs) > 1:
                continue  # as long as another one requires a gradient
            if edge is not None and array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if edge is not None and array.dtype.kind == "c":
                raise RuntimeError(
                    "grad can be implicitly created only for real scalar outputs but got "
                    f"{t.dtype}. Pass a gradient, or take .real, .imag or .abs() first."
                )
            ct: Any = np.ones(array.shape, array.dtype) if array.ndim else np.array(1, array.dtype)
        else:
            ct = cast(_seed(g, t, i, create, batched), array.dtype)
        if edge is None:
            raise RuntimeError(
                f"element {i} of tensors does not require grad and does not have a grad_fn"
            )
        roots.append((edge, ct))
    if not roots:
        raise RuntimeError("no element of tensors requires grad and has a grad_fn")
    return roots


def _seed(g: Tensor, t: Tensor, i: int, create: bool, batched: bool) -> Any:
    shape = g._array.shape
    if (shape[1:] if batched else shape) != t._array.shape or (batched and not any(shape[:1])):
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
            f"shape of {t.shape}" + (", without the batched dimension." if batched else ".")
        )
    if g.is_complex() and not t.is_complex():
        raise RuntimeError(
            f"For complex Tensors, both grad_output and output are required to have the same "
            f"kind of dtype: grad_output[{i}] is {g.dtype}, output[{i}] is {t.dtype}."
        )
    return take(g, create)


def _tensor_backward(self: Tensor, gradient: Any = None, retain_graph: bool | None = None,
                     create_graph: bool = False, inputs: Any = None,
                     retain_variables: bool | None = None) -> None:
    """Add the gradients of this tensor to the ``grad`` of the leaves; see ``autograd.backward``."""
    if retain_variables is not None:
        warnings.warn("'retain_variables' is now 'retain_graph'.", FutureWarning, stacklevel=2)
        retain_graph = retain_variables if retain_graph is None else retain_graph
    backward((self,), None if gradient is None else (gradient,), retain_graph, create_graph,
             inputs=inputs)


Tensor.backward = _tensor_backward  # type: ignore[method-assign]  # Tensor is below the engine


def is_checkpoint_valid() -> bool:
    """Whether no ``grad`` is under way in this thread, which would miss the leaves inside."""
    return walks.partial == 0
