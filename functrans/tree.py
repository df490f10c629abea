"""Nested containers: tuples, lists, dicts, namedtuples, dataclasses and registered classes.

Everything else is a leaf, except None, which is a container without leaves.

>>> from functrans import tree
>>> leaves, structure = tree.flatten({"w": 1.0, "b": (2.0, None)})
>>> leaves
[2.0, 1.0]
>>> tree.unflatten(structure, [20.0, 10.0])
{'w': 10.0, 'b': (20.0, None)}
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from functrans._core.array import Array, aval_of, wrap
from functrans._core.bind import PLAIN, Tracer
from functrans.errors import ArgumentError


class Structure(NamedTuple):
    """How leaves nest; ``kind`` is None for a leaf. Compares by value, and prints as the tree."""

    kind: type | None
    aux: Any
    children: tuple[Structure, ...]

    @property
    def size(self) -> int:
        return 1 if self.kind is None else sum(c.size for c in self.children)

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        return repr(unflatten(self, [_Star()] * self.size))


class _Star:
    def __repr__(self) -> str:
        return "*"


LEAF = Structure(None, None, ())
# The types of nearly all leaves; others are recognised by not being a container.
_NUMBERS = PLAIN | {Array}
_registry: dict[type, tuple[Callable, Callable]] = {}


def register(
    cls: type,
    flatten: Callable[[Any], tuple[Iterable, Any]],
    unflatten: Callable[[Any, Iterable], Any],
) -> type:
    """Teach the transforms a container class.

    ``flatten(x)`` returns the children and a hashable value, from which
    ``unflatten(value, children)`` rebuilds ``x``.
    """
    if not isinstance(cls, type):
        raise ArgumentError(f"tree.register needs a class, but got {cls!r}")
    _registry[cls] = (flatten, unflatten)
    return cls


def is_registered(kind: type) -> bool:
    """Whether objects of a class are containers because ``register`` has said so."""
    return kind in _registry


def opened(x: Any) -> tuple[Iterable, Any] | None:
    """Children of a container and what else it takes to rebuild it; None for a leaf."""
    kind = type(x)
    if kind in _registry:
        return _registry[kind][0](x)
    if kind in _NUMBERS or isinstance(x, Tracer):
        return None
    if x is None:
        return (), None
    if kind is tuple or kind is list:
        return x, None
    if isinstance(x, tuple) and hasattr(kind, "_fields"):
        return x, None
    if kind is dict or kind is OrderedDict:
        keys = _sort(x)
        return [x[k] for k in keys], _Keys(keys, tuple(x))
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        names = [f.name for f in dataclasses.fields(x) if f.init]
        return [getattr(x, n) for n in names], tuple(names)
    return None


class _Keys(NamedTuple):
    """Keys in canonical order, for comparison, and in the user's order, to rebuild the dict."""

    canonical: tuple
    order: tuple

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keys) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)


def _sort(d: Any) -> tuple:
    try:
        return tuple(sorted(d))
    except TypeError:
        return tuple(sorted(d, key=lambda k: (type(k).__name__, repr(k))))


def closed(structure: Structure, children: list) -> Any:
    """The container whose children these are; the reverse of ``opened``."""
    kind, aux = structure.kind, structure.aux
    if kind in _registry:
        return _registry[kind][1](aux, children)
    if kind is type(None):
        return None
    if kind is tuple or kind is list:
        return kind(children)
    if isinstance(aux, _Keys):
        values = dict(zip(aux.canonical, children, strict=True))
        return kind((k, values[k]) for k in aux.order)  # type: ignore[misc]
    if aux is None:
        return kind(*children)  # type: ignore[misc]  # a namedtuple
    return kind(**dict(zip(aux, children, strict=True)))  # type: ignore[misc]  # a dataclass


def keys_of(x: Any) -> tuple | list | None:
    """Of a dict its keys, of a dataclass a list of its fields, in the order of the children."""
    aux = opened(x)[1] if type(x) not in _registry and opened(x) else None  # type: ignore[index]
    if isinstance(aux, _Keys):
        return aux.canonical
    return list(aux) if isinstance(aux, tuple) else None


def with_children(x: Any, children: list) -> Any:
    """A container as ``x``, with other children."""
    parts = opened(x)
    assert parts is not None, x
    return closed(Structure(type(x), parts[1], ()), children)


def flatten(x: Any) -> tuple[list, Structure]:
    """The leaves of ``x``, depth first, and how they nest."""
    leaves: list = []
    return leaves, _flatten(x, leaves)


def _flatten(x: Any, leaves: list) -> Structure:
    """Append the leaves of ``x`` to ``leaves``."""
    parts = opened(x)
    if parts is None:
        leaves.append(_leaf(x))
        return LEAF
    children, aux = parts
    return Structure(type(x), aux, tuple([_flatten(c, leaves) for c in children]))


def _leaf(x: Any) -> Any:
    """A leaf; of an array that is written into what it is now."""
    return x.current() if isinstance(x, Tracer) else x


def unflatten(structure: Structure, leaves: Iterable) -> Any:
    """The tree of this structure with these leaves."""
    if not isinstance(structure, Structure):
        raise ArgumentError(
            f"tree.unflatten takes what tree.structure or tree.flatten returns, but got "
            f"{type(structure).__name__} {structure!r}"
        )
    leaves = list(leaves)
    if structure.kind is None and len(leaves) == 1:
        return leaves[0]
    if len(leaves) != structure.size:
        raise ArgumentError(
            f"tree.unflatten: {structure!r} has {structure.size} leaves, but got {len(leaves)}"
        )
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator) -> Any:
    if structure.kind is None:
        return next(leaves)
    return closed(structure, [_unflatten(c, leaves) for c in structure.children])


def structure(x: Any) -> Structure:
    """How the leaves of ``x`` nest."""
    return flatten(x)[1]


def leaves(x: Any) -> list:
    """The leaves of ``x``, depth first, dicts by sorted key."""
    return flatten(x)[0]


def map(f: Callable, x: Any, *others: Any) -> Any:
    """``f`` of corresponding leaves; where ``x`` has None, the others are ignored."""
    xs, shape = flatten(x)
    columns = [matching(shape, y, i + 1) for i, y in enumerate(others)]
    return unflatten(shape, [f(*row) for row in zip(xs, *columns, strict=True)])


def matching(shape: Structure, y: Any, position: int) -> list:
    """The parts of ``y`` at the leaves of ``shape``."""
    if shape.kind is None:
        return [_leaf(y)]
    if shape.kind is type(None):
        return []
    parts = opened(y)
    if (
        parts is None
        or type(y) is not shape.kind
        or len(shape.children) != len(children := list(parts[0]))
        or parts[1] != shape.aux
    ):
        raise ArgumentError(
            f"tree.map: argument {position} has structure {structure(y)!r} where the first "
            f"has {shape!r}"
        )
    return [
        z for s, c in zip(shape.children, children, strict=True) for z in matching(s, c, position)
    ]


def ravel(x: Any) -> tuple[Any, Callable]:
    """All leaves of ``x`` in one vector, and the function that makes such a vector a tree again.

    >>> import functrans as ft
    >>> v, back = ft.tree.ravel({"w": ft.array([[1.0, 2.0]]), "b": 3.0})
    >>> v
    Array([3., 1., 2.])
    >>> back(v * 2)
    {'w': Array([[2., 4.]]), 'b': Array(6.)}
    """
    xs, shape = flatten(x)
    avals = [aval_of(a) if isinstance(a, Tracer) else aval_of(np.asarray(a)) for a in xs]
    ends = np.cumsum([a.size for a in avals], dtype=np.int64).tolist()
    parts = [np.reshape(a, (-1,)) for a in xs]
    vector = np.concatenate(parts) if parts else np.zeros(0)
    if not isinstance(vector, Tracer):
        vector.setflags(write=False)

    def back(v: Any) -> Any:
        if v.shape != (total := (ends[-1] if ends else 0,)):
            raise ArgumentError(
                f"tree.ravel: expected a vector of shape {total}, but got {v.shape}"
            )
        pieces = [v[e - a.size : e].reshape(a.shape) for a, e in zip(avals, ends, strict=True)]
        return unflatten(shape, [p.astype(a.dtype) for p, a in zip(pieces, avals, strict=True)])

    return vector if isinstance(vector, Tracer) else wrap(vector), back
