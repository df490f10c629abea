"""The options of transforms, and paths into containers, by which ``argnums`` names arguments."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from functrans import tree
from functrans._core.array import integer
from functrans.errors import ArgumentError

# ---- What options of transforms may be


def require_count(who: str, name: str, value: Any, least: int = 1, instead: str = "") -> int:
    """``value`` as an int of at least ``least``; ``instead`` says what else it may be."""
    count = integer(value)
    if count is None or count < least:
        raise ArgumentError(
            f"{who}: {name} must be {instead}an int of at least {least}, but is {value!r}"
        )
    return count


def require_choice(who: str, name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless ``value`` is one of these."""
    if value not in choices:
        raise ArgumentError(
            f"{who}: {name} must be one of {', '.join(choices)}, but is {value!r}"
        )


# ---- Paths into containers, such as ``params.layers[0].w``, by which ``argnums`` names parts


class Step(NamedTuple):
    """``.key`` or ``[key]``."""

    attribute: bool
    key: Any

    def __str__(self) -> str:
        return f".{self.key}" if self.attribute else f"[{self.key!r}]"


Path = tuple[Step, ...]


class NoSuchPart(LookupError):
    """A step that leads nowhere: its message says from where."""


@functools.lru_cache(1024)
def parse(text: str) -> tuple[str, Path] | None:
    """The parameter that a path begins with, and its steps; None if it is no path."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        return None
    steps: list[Step] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            steps.append(Step(True, node.attr))
        elif isinstance(node, ast.Subscript):
            try:
                steps.append(Step(False, ast.literal_eval(node.slice)))
            except ValueError:
                return None
        else:
            return None
        node = node.value
    return node.id, tuple(steps[::-1])


def show(name: str, path: Sequence[Step]) -> str:
    return name + "".join(map(str, path))


def part(name: str, x: Any, path: Path) -> Any:
    """What a path leads to in ``x``, the argument ``name``."""
    for i, step in enumerate(path):
        children, at = _child(show(name, path[:i]), x, step)
        x = children[at]
    return x


def resolve(name: str, x: Any, path: Path) -> Path:
    """The one path to what ``path`` leads to, which may say -1 for the last entry of a list."""
    steps = []
    for i, step in enumerate(path):
        children, at = _child(show(name, path[:i]), x, step)
        steps.append(_steps(x, children)[at])
        x = children[at]
    return tuple(steps)


def replace(name: str, x: Any, path: Path, value: Any) -> Any:
    """``x`` with ``value`` where a path leads to; containers on the way are new."""
    if not path:
        return value
    children, at = _child(name, x, path[0])
    children[at] = replace(f"{name}{path[0]}", children[at], path[1:], value)
    return tree.with_children(x, children)


def _child(where: str, x: Any, step: Step) -> tuple[list, int]:
    """The children of a container, and which of them a step leads to."""
    opened = tree.opened(x)
    if opened is None:
        raise NoSuchPart(f"`{where}` is {type(x).__name__}, which is no container")
    children = list(opened[0])
    steps = _steps(x, children)
    if isinstance(x, list | tuple) and not step.attribute:
        i = integer(step.key)
        if i is not None and -len(children) <= i < len(children):
            return children, i % len(children)
    elif step in steps:
        return children, steps.index(step)
    elif step.attribute and isinstance(x, dict) and step._replace(attribute=False) in steps:
        return children, steps.index(step._replace(attribute=False))
    raise NoSuchPart(f"`{where}` has no {step}; it has {', '.join(map(str, steps)) or 'no parts'}")


def _steps(x: Any, children: list) -> list[Step]:
    """The steps to the children of a container."""
    fields = getattr(x, "_fields", None)
    if isinstance(x, tuple) and fields is not None:
        return [Step(True, n) for n in fields]
    if isinstance(x, list | tuple):
        return [Step(False, i) for i in range(len(children))]
    keys = tree.keys_of(x)
    if keys is not None:
        return [Step(isinstance(keys, list), k) for k in keys]
    names = list(getattr(x, "__dict__", {}))  # of a registered class: its own attributes
    return [
        Step(True, next((n for n in names if getattr(x, n) is c), f"{i}"))
        for i, c in enumerate(children)
    ]


def leaves(x: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of an argument, with the path to it."""
    opened = tree.opened(x)
    if opened is None:
        yield path, x
        return
    children = list(opened[0])
    for step, c in zip(_steps(x, children), children, strict=True):
        yield from leaves(c, (*path, step))
