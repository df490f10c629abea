"""Writes the lists of public names in functrans/__init__.py from its imports.

A name is written by hand once, where it is imported: at the top of the file, or under
``TYPE_CHECKING`` where it is imported when it is first used. ``__all__`` and ``_LAZY`` follow.
Run it with ``python docs/public_names.py``; a test says when they are out of date.
"""

from __future__ import annotations

import ast
import re
import textwrap
from itertools import chain
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "functrans" / "__init__.py"
LISTS = re.compile(r'^__all__ = \[\n.*?^\]\n|^_LAZY = \{\n.*?^\}\n', re.MULTILINE | re.DOTALL)


def source() -> str:
    """The file with its lists as its imports say."""
    text = PACKAGE.read_text()
    body = ast.parse(text).body
    later = next(node.body for node in body if isinstance(node, ast.If))
    lazy = {module: names for module, names in map(_imported, later) if module}
    public = [name for node in body for name in _defined(node)]
    lists = iter([_all([*public, *chain(*lazy.values())]), _lazy(lazy)])
    return LISTS.sub(lambda _: next(lists), text)


def _defined(node: ast.stmt) -> list[str]:
    """Public names that a statement of the file gives the package."""
    if isinstance(node, ast.ImportFrom) and str(node.module).startswith("functrans"):
        names = [a.asname or a.name for a in node.names]
    elif isinstance(node, ast.Assign):
        names = [t.id for t in node.targets if isinstance(t, ast.Name)]
    else:
        names = []
    return [name for name in names if not name.startswith("_")]


def _imported(node: ast.stmt) -> tuple[str, list[str]]:
    """A module of the package, without the package's name, and what is imported of it."""
    assert isinstance(node, ast.ImportFrom), ast.dump(node)
    return str(node.module).removeprefix("functrans").lstrip("."), [a.name for a in node.names]


def _all(names: list[str]) -> str:
    lines = textwrap.wrap(", ".join([f'"{name}"' for name in sorted(names)]) + ",", 96)
    return "__all__ = [\n" + textwrap.indent("\n".join(lines), "    ") + "\n]\n"


def _lazy(names: dict[str, list[str]]) -> str:
    rows = [f'    "{module}": ({", ".join([repr(n) for n in found])}{"," * (len(found) == 1)}),'
            for module, found in sorted(names.items())]
    return "_LAZY = {\n" + "\n".join(rows).replace("'", '"') + "\n}\n"


if __name__ == "__main__":
    PACKAGE.write_text(source())
