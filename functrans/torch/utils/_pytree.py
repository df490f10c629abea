"""``torch.utils._pytree``: nested lists, tuples and dicts taken apart and put together."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, NamedTuple

PyTree = Any
_MANY = (list, tuple, deque)
_NAMED: tuple[Any, ...] = (dict, OrderedDict, defaultdict)


class TreeSpec(NamedTuple):
    """How leaves are nested: the class, the keys if there are any, and the parts."""

    type: Any
    context: Any
    children_specs: list

    @property
    def num_leaves(self) -> int:
        """How many leaves there are."""
        return 1 if self.type is None else sum([c.num_leaves for c in self.children_specs])

    def is_leaf(self) -> bool:
        """Whether it is a leaf."""
        return self.type is None


_LEAF = TreeSpec(None, None, [])
_OTHERS: dict[type, tuple[Callable, Callable]] = {}


def register_pytree_node(cls: type, flatten_fn: Callable, unflatten_fn: Callable,
                         **options: Any) -> None:
    """Take objects of ``cls`` apart by ``flatten_fn(x)``, which returns parts and context."""
    _OTHERS[cls] = flatten_fn, unflatten_fn


def _apart(tree: Any) -> tuple[list, Any] | None:
    """The parts of a node, and what else it is made of; None for leaves."""
    kind = type(tree)
    if kind in _OTHERS:
        parts, context = _OTHERS[kind][0](tree)
        return list(parts), context
    if kind in _NAMED:
        factory = tree.default_factory if kind is defaultdict else None
        return list(tree.values()), (list(tree), factory)
    if kind in _MANY or (isinstance(tree, tuple) and hasattr(tree, "_fields")):
        return list(tree), None
    return None


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None,
                 ) -> tuple[list, TreeSpec]:
    """The leaves in order, and how they are nested."""
    node = None if is_leaf is not None and is_leaf(tree) else _apart(tree)
    if node is None:
        return [tree], _LEAF
    leaves, specs = [], []
    for part in node[0]:
        below, spec = tree_flatten(part, is_leaf)
        leaves += below
        specs.append(spec)
    return leaves, TreeSpec(type(tree), node[1], specs)


def tree_unflatten(leaves: Any, treespec: TreeSpec) -> PyTree:
    """Leaves nested as ``treespec`` says."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but "
                         f"the spec refers to a pytree that holds {treespec.num_leaves} items")
    return _together(iter(leaves), treespec)


def _together(leaves: Any, spec: TreeSpec) -> Any:
    kind: Any = spec.type
    if kind is None:
        return next(leaves)
    parts = [_together(leaves, c) for c in spec.children_specs]
    if kind in _OTHERS:
        return _OTHERS[kind][1](parts, spec.context)
    if kind in _NAMED:
        keys, factory = spec.context
        named = dict(zip(keys, parts, strict=True))
        return defaultdict(factory, named) if factory else kind(named)
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """How the leaves are nested."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable, tree: PyTree, *rests: PyTree,
             is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """``func`` of each leaf, and of the leaves of others at its place."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_map_only(kind: Any, func: Callable, tree: PyTree) -> PyTree:
    """``func`` of each leaf of a class; the others as they are."""
    return tree_map(lambda x: func(x) if isinstance(x, kind) else x, tree)


def tree_all(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether ``pred`` holds of all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether ``pred`` holds of some leaf."""
    return any(map(pred, tree_leaves(tree)))


__all__ = ["PyTree", "TreeSpec", "register_pytree_node", "tree_all", "tree_any", "tree_flatten",
           "tree_leaves", "tree_map", "tree_map_only", "tree_structure", "tree_unflatten"]
