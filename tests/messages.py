"""Where a message of the package is written: ``python -m tests.messages PHRASE``.

Messages run over several lines of source, where grep does not find a phrase. Here the parts of each
are joined first; a number or name that is put in stands as ``{}``. PHRASE is a regular expression.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "functrans"


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The strings of a file with their lines, parts joined."""
    inside: set[ast.AST] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            inside |= set(node.values)
            yield node.lineno, "".join([str(part.value) if isinstance(part, ast.Constant) else "{}"
                                        for part in node.values])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def find(phrase: str, paths: Iterable[Path]) -> Iterator[str]:
    """Places and texts of the messages in some files that have a phrase."""
    for path in sorted(paths):
        for line, text in texts(path.read_text()):
            text = " ".join(text.split())
            if m := re.search(phrase, text):
                place = path.relative_to(PACKAGE.parent)
                yield f"{place}:{line}: ...{text[max(0, m.start() - 40) : m.end() + 60]}"


if __name__ == "__main__":
    print(*find(" ".join(sys.argv[1:]), PACKAGE.rglob("*.py")), sep="\n")
