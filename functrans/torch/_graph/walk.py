"""The walk backward.

Nodes are passed newest first. Every node that reads an operand is newer than the node that
made it, so a node's cotangent is complete when its turn comes. An undefined cotangent, None, is
passed on too: users' functions receive zeros for it. There is no recursion: only memory bounds the
depth. All state is local to a walk, so walks may nest and run in several threads.
"""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections.abc import Callable, Collection, Container, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from functrans import vmap
from functrans._core.bind import may_have_nan
from functrans._kernels.large import keep_memory
from functrans.errors import name_of
from functrans.extend import AnyArray, General
from functrans.torch._graph.levels import (
    Route,
    by_age,
    edge_key,
    explore,
    forward_value,
    leading_to,
    leads_forward,
    reach,
)
from functrans.torch._graph.modes import quietly, set_unusual, state, unusual
from functrans.torch._graph.nodes import AccumulateGrad, Edge, Node, caller
from functrans.torch._graph.observed import set_watch
from functrans.torch._tensors.dtypes import Size
from functrans.torch._tensors.memory import is_alone, take
from functrans.torch._tensors.tensor import Tensor, show


class _Walks(threading.local):
    """Of this thread: how many walks are under way, and whether some only computes ``grad``; of the
    innermost its number, what it calls at its end, and where it starts and leads."""

    depth = 0
    partial = 0
    number = 0
    callbacks: list[Callable] | None = None
    starts: Sequence[Node] = ()
    needed: Container | None = None


walks = _Walks()
_numbers = itertools.count(1)
# A walk inside so many others of its thread has a thread of its own, with a stack of its own.
_DEEPEST = 24


def run(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge] | None, retain: bool,
        create: bool) -> list:
    """Carry cotangents from ``roots`` back through the graph.

    Without ``wanted``, to the leaves, whose ``grad`` they are added to. With it, only as far as
    those places, and their cotangents are returned, None where there is no path.
    """
    if walks.depth >= _DEEPEST:
        return _elsewhere(lambda: run(roots, wanted, retain, create))
    has_tangents = bool(unusual) and _has_tangents(roots)
    # those of ``.grad`` have none, as in torch
    only_forward = has_tangents and not create and walks.partial > 0
    retain, create = retain or has_tangents, create or only_forward
    watch = state.watch
    if watch is None:
        cts = _start(roots)
    else:
        with watch.scope("torch::autograd::GraphRoot"):
            cts = _start(roots)
    keys = [*map(edge_key, wanted or ())]
    captured: dict[tuple, Any] = dict.fromkeys(keys)
    inner, ends = explore(cts)
    route = None if wanted is None else leading_to(inner, ends, captured)
    fields = walks.__dict__
    before, outer = (state.grad, state.only_forward), dict(fields)
    try:
        state.grad, state.only_forward = create, only_forward
        fields.update(callbacks=[], number=next(_numbers), depth=walks.depth + 1, starts=list(cts),
                      needed=route and route.needed)
        if watch is None:
            cts, captured = quietly(_glance, cts, inner, ends, route, captured, retain, create)
        if cts:
            nodes = sorted(inner + ends, key=by_age)
            quietly(_walk, nodes, cts, route, captured, retain, create)
        while walks.callbacks:
            walks.callbacks.pop(0)()
    finally:
        state.grad, state.only_forward = before
        fields.clear()
        fields.update(outer)
    if only_forward:
        return [forward_value(captured[key]) for key in keys]
    found = [*map(captured.__getitem__, keys)]
    for c in found:
        if type(c) is ndarray:
            keep_memory(c)
    return found


def _start(roots: Sequence[tuple[Edge, Any]]) -> dict[Node, Any]:
    """The cotangents of the nodes that a walk starts from."""
    cts: dict[Node, Any] = {}
    for (node, k), ct in roots:
        _add(cts, set(), node, k, ct)
    return cts


def _has_tangents(roots: Sequence[tuple[Edge, Any]]) -> bool:
    """Whether a forward level is open, and tangents arrive where a walk begins."""
    return bool(unusual and state.forward) and any([leads_forward(edge) for edge, _ in roots])


def will_pass(node: Node) -> bool:
    """Whether the innermost walk of this thread comes by ``node``."""
    if node not in reach(walks.starts):
        return False
    return walks.needed is None or node in walks.needed


def _elsewhere(f: Callable[[], list]) -> list:
    """``f()`` in a new thread, which is in the modes of this one."""
    results: list[list] = []
    failures: list[BaseException] = []
    context, partial = contextvars.copy_context(), walks.partial
    modes = dict(state.__dict__)

    def work() -> None:
        state.__dict__.update(modes)
        set_unusual()
        walks.partial = partial
        set_watch(state.watch)
        try:
            results.append(context.run(f))
        except BaseException as failure:  # raised again below, in the thread that waits
            failures.append(failure)
        finally:
            set_watch(None)
            set_unusual(inference=False, saving=None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def cotangents_at(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge],
                  retain: bool, create: bool) -> list:
    """The cotangents at ``wanted``, and at no other leaf: what ``grad`` computes."""
    walks.partial += 1
    try:
        return run(roots, wanted, retain, create)
    finally:
        walks.partial -= 1


def cotangent_rows_at(roots: Sequence[tuple[Edge, Any]], wanted: Sequence[Edge],
                      retain: bool, create: bool, at_once: bool = True) -> list:
    """``cotangents_at`` for each entry of cotangents that have one more axis in front.

    ``at_once``: in one walk, if all nodes allow it.
    """
    edges = [edge for edge, _ in roots]
    n = roots[0][1].shape[0]
    at_once = at_once and (create or not _has_tangents(roots))
    passed = reach([node for node, _ in edges]) if at_once else []
    if at_once and all([node.batches and node.extras is None for node in passed]):
        def walk(*cts):
            return tuple(cotangents_at(list(zip(edges, cts, strict=True)), wanted, retain, create))

        return list(vmap(walk)(*[ct for _, ct in roots]))
    rows = [
        cotangents_at([(edge, ct[i]) for edge, ct in roots], wanted, retain or i < n - 1, create)
        for i in range(n)
    ]
    return [stacked(cts) for cts in zip(*rows, strict=True)]


def stacked(cts: Sequence) -> AnyArray | None:
    like = next((ct for ct in cts if ct is not None), None)
    if like is None:
        return None
    return np.stack([np.zeros(like.shape, like.dtype) if ct is None else ct for ct in cts])


def _glance(cts: dict, inner: list[Node], ends: Sequence[Node], route: Route | None,
            captured: dict, retain: bool, create: bool) -> tuple[dict, dict]:
    """Walk by the bare formulas, and return where ``_walk`` continues.

    This goes as far as nodes may be passed twice without anybody noticing. A NaN that has arrived
    may come from zero times infinity; ``_walk`` then starts from the beginning.
    """
    # loops: a comprehension is a function that is made and called, 0.1 us of what a walk takes
    here, seen, sound = dict(cts), dict(captured), {}
    for n, ct in cts.items():
        if n.outputs != 1:
            here[n] = list(ct)
    order = list(inner)
    for n in ends:
        if type(n) is not AccumulateGrad or n.extras is not None or n.variable._hooks:
            order.append(n)  # noqa: PERF401
    if route is not None and route.passing is not None:
        order = [n for n in order if n in route.passing]
    order.sort(key=by_age)
    state.where = caller() if create else None
    try:
        passed = _pass_plain(order, here, route, seen, create, sound)
    finally:
        state.where = None
    if _have_nan([*seen.values(), *here.values()], sound):
        return cts, captured
    sound.clear()  # for ``is_alone``
    if passed == len(order):  # what is left are leaves
        leaves = sorted(here, key=by_age)
        arrived = [*map(here.pop, leaves)]
        for i, leaf in enumerate(leaves):
            if route is None:
                leaf.variable.accumulate(arrived[i], create, is_alone(arrived, i))
            else:
                _capture(leaf, arrived[i], seen)
    if not retain:
        for node in order[:passed]:
            node.release()
    return here, seen


_ABSENT = object()


def _pass_plain(order: Sequence[Node], cts: dict, route: Route | None, captured: dict,
                create: bool, sound: dict) -> int:
    """Pass nodes of ``order`` by the bare formulas, and return how many: all, or those before one
    that has hooks, may be passed only once, or should know first where a NaN comes from."""
    needed, passing, wanted = route or ((), None, ())
    sums: set[Node] = set()
    pop, get = cts.pop, cts.get
    for i, node in enumerate(order):
        if not node.plain and (node.extras is not None or not node.repeats or (
                node.wary and _once(node, cts.get(node)))):
            return i
        ct = pop(node, _ABSENT)
        if ct is _ABSENT:
            continue
        if wanted and id(node) in wanted:
            _capture(node, ct, captured)
            if node not in needed:
                continue
        if ct is None or type(ct) is list:
            pairs: Any = zip(node.edges, _pull(node, ct, create), strict=False)
        else:
            pairs = node.bare(ct, create)
            if not node.plain and node.wary:
                pairs = list(pairs)
                _note_spread(node, ct, pairs[0][1], sound)
        for edge, c in pairs:
            if edge is None:
                continue
            parent, k = edge
            if passing is not None and parent not in passing:
                continue
            if parent.outputs == 1 and c is not None and get(parent) is None:
                cts[parent] = c
            else:
                _add(cts, sums, parent, k, c)
    return len(order)


def _note_spread(node: Any, ct: Any, whole: Any, sound: dict) -> None:
    """Note the id of ``whole``, the cotangent of an operand, if its many entries are zeros and
    those of ``ct``, which has no NaN.

    Looking through ``ct`` was then enough, as for a table of which a few rows were read.
    """
    if (type(whole) is ndarray and whole.size >= max(_SPREAD, 4 * ct.size)
            and node.prim.facts.indexing == "reads" and not may_have_nan(ct)):
        sound[id(whole)] = whole


# the entries from which looking through an operand takes longer than asking whether it must be done
_SPREAD = 65536


def _once(node: Any, ct: Any) -> bool:
    """Whether a walk may pass a leaf only once, or should know first where a NaN comes from."""
    if type(node) is AccumulateGrad:
        return True  # it has hooks
    # its rule may refuse a NaN, which strong zero might spare it
    return isinstance(node.prim, General) and _have_nan([ct])


def _have_nan(cts: Sequence, sound: Collection[int] = ()) -> bool:
    """Whether there may be a NaN; with several outputs a cotangent is a list of them.

    ``sound``: the ids of those that need not be looked through.
    """
    for ct in cts:
        if type(ct) is list:
            if _have_nan(ct, sound):
                return True
        elif ct is not None and id(ct) not in sound and may_have_nan(ct):
            return True
    return False


def _walk(order: Sequence[Any], cts: dict, route: Route | None, captured: dict, retain: bool,
          create: bool) -> None:
    """Pass those nodes of ``order`` to which ``cts`` leads, with strong zero, hooks and
    observers."""
    needed, passing, wanted = route or ((), None, ())
    watch = state.watch
    sums: set[Node] = set()
    pop = cts.pop
    for node in order:
        ct = pop(node, _ABSENT)
        if ct is _ABSENT:
            continue
        plain = node.extras is None
        asked = wanted and id(node) in wanted
        if asked and node in needed:  # its hooks are for what goes on, as in torch
            _capture(node, ct, captured)
            asked = False
        if not plain or type(node) is AccumulateGrad:
            if route is None and plain and watch is None:
                leaf = node.variable
                leaf.accumulate(_hook(leaf._hooks, ct, create) if leaf._hooks else ct, create)
                continue
            ct = _after_hooks(node, ct, create)
            if route is not None and type(node) is AccumulateGrad:
                _capture(node, ct, captured)
                continue
        if asked:
            _capture(node, ct, captured)
            continue
        if node.extras is not None and node.extras.pre_hooks:
            ct = _before(node, ct, create)
        if node.extras is not None and node.extras.post_hooks:
            parts = _between_hooks(node, ct, create)
        elif ct is None or type(ct) is list or watch is not None:
            parts = _pull(node, ct, create)
        else:
            parts = node.pull(ct, create)
        for edge, c in zip(node.edges, parts, strict=False):
            if edge is not None and (passing is None or edge[0] in passing):
                _add(cts, sums, edge[0], edge[1], c)
        if not retain:
            node.release()


def _add(cts: dict, sums: set, node: Node, k: int, c: Any) -> None:
    """Add ``c`` to the cotangent of output ``k`` of ``node``; None says only that it is passed.

    ``sums``: the nodes whose cotangent is an array made in this walk, which nothing else reads.
    """
    old = cts.get(node)
    if node.outputs != 1:
        if old is None:
            cts[node] = old = [None] * node.outputs
        if c is not None:
            old[k] = c if old[k] is None else old[k] + c
    elif old is None or c is None:
        cts[node] = c if old is None else old
    elif node in sums and type(c) is ndarray and c.dtype is old.dtype:
        _sum(old, c, old)
    else:
        cts[node] = total = old + c
        if type(total) is ndarray:
            sums.add(node)


_sum = np.add


def _pull(node: Node, ct: Any, create: bool) -> Sequence:
    """``node.pull``, where there is something to pull or the node asks for what is undefined."""
    undefined = ct is None or (type(ct) is list and all([c is None for c in ct]))
    if undefined and not node.takes_undefined:
        return [None] * len(node.edges)
    watch = state.watch
    return node.pull(ct, create) if watch is None else watch.pull(node, ct, create)


def _capture(node: Node, ct: Any, captured: dict) -> None:
    if node.outputs == 1:
        key = edge_key((node, 0))
        if key in captured and ct is not None:
            captured[key] = ct if captured[key] is None else captured[key] + ct
        return
    for k, c in enumerate(ct):
        key = edge_key((node, k))
        if key in captured and c is not None:
            captured[key] = c


def _after_hooks(node: Node, ct: Any, create: bool) -> Any:
    """Apply the hooks of tensors to the cotangent of ``node``, and keep it where it is retained."""
    extras = node.extras
    if type(node) is AccumulateGrad and node.variable._hooks:
        ct = _hook(node.variable._hooks, ct, create)
    if extras is None:
        return ct
    cts = [ct] if node.outputs == 1 else list(ct)
    for k, hooks in extras.tensor_hooks.items():
        cts[k] = _hook(hooks, cts[k], create)
    for k, ref in extras.retaining.items():
        t = ref()
        if t is not None and cts[k] is not None:
            t.accumulate(cts[k], create)
    return cts[0] if node.outputs == 1 else cts


def _before(node: Any, ct: Any, create: bool) -> AnyArray | list:
    """The cotangent of ``node`` after the hooks that are called before it is passed, which what
    is asked of the place itself does not see."""
    cts = [ct] if node.outputs == 1 else list(ct)
    for hook in list(node.extras.pre_hooks.values()):
        new = hook(tuple([None if c is None else show(c) for c in cts]))
        if new is not None:
            cts = _replace(hook, cts, new, create)
    return cts[0] if node.outputs == 1 else cts


def _hook(hooks: dict, ct: Any, create: bool) -> Any:
    """``ct`` after the hooks of a tensor, in the order in which they were registered."""
    for hook in list(hooks.values()):
        new = hook(None if ct is None else show(ct))
        if new is not None:
            (ct,) = _replace(hook, [ct], (new,), create)
    return ct


def _replace(hook: Any, cts: Sequence, new: Any, create: bool) -> list:
    """The cotangents that the gradients ``new`` stand for, which ``hook`` puts in place of
    ``cts``."""
    new = tuple(new) if isinstance(new, tuple | list) else (new,)
    who = name_of(hook)
    if len(new) != len(cts):
        raise RuntimeError(
            f"hook '{who}' has returned an incorrect number of values: {len(new)} gradients for "
            f"the {len(cts)} that it was given"
        )
    out = []
    for c, g in zip(cts, new, strict=True):
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(
                f"expected Variable, but hook returned '{type(g).__name__}': '{who}' must return a "
                "Tensor or None"
            )
        if g is not None and c is None:
            raise RuntimeError(
                f"can't replace a None gradient with a non-None value, as the hook '{who}' does"
            )
        if g is not None and g._array.shape != c.shape:
            raise RuntimeError(
                f"hook '{who}' has changed the size of value: the gradient was of "
                f"{Size(c.shape)}, what it returned is of {g.shape}"
            )
        if g is not None and g._array.dtype != c.dtype:
            raise RuntimeError(
                f"hook '{who}' has changed the type of value (was {_kind(c)} got {_kind(g)}); "
                "convert it back with .to(grad.dtype)"
            )
        out.append(None if g is None else take(g, create))
    return out


def _kind(x: Any) -> str:
    """The type of a tensor or cotangent as ``Tensor.type`` has it."""
    return str((x if isinstance(x, Tensor) else show(x)).type())


def _between_hooks(node: Any, ct: Any, create: bool) -> list:
    """Pass a node that has hooks: they see, and may replace, the cotangents of its operands."""
    arrived = [ct] if node.outputs == 1 else ct
    out = list(_pull(node, ct, create))
    for hook in list(node.extras.post_hooks.values()):
        new = hook(tuple([None if c is None else show(c) for c in out]),
                   tuple([None if c is None else show(c) for c in arrived]))
        if new is not None:
            out = _replace(hook, out, new, create)
    return out
