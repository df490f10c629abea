"""What the site adds to Sphinx: pages of the API, and links to them from names in the prose.

The pages of the API are made from the docstrings of the public modules, anew for each build. A name
in backquotes that is public, as in `ft.grad`, becomes a link to its entry.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from docutils import nodes

REFERENCE = Path(__file__).resolve().parent / "reference"

# Modules of the reference, by chapter.
CHAPTERS = {
    "functrans": ["functrans"],
    "Containers, settings, errors": [
        "functrans.tree", "functrans.config", "functrans.cache", "functrans.errors",
    ],
    "Random numbers": ["functrans.random"],
    "Many processes": ["functrans.parallel", "functrans.dask"],
    "Tools": ["functrans.testing", "functrans.debug", "functrans.profile", "functrans.extend"],
    "NumPy's names": [
        "functrans.numpy", "functrans.numpy.linalg", "functrans.numpy.fft", "functrans.numpy.emath",
    ],
    "SciPy's names": [
        f"functrans.scipy.{name}"
        for name in ("fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
                     "sparse", "sparse.linalg", "spatial", "spatial.distance", "spatial.transform",
                     "special", "stats")
    ],
    "Others": ["functrans.interop", "functrans.numba", "functrans.torch",
               "functrans.torch.autograd", "functrans.torch.func", "functrans.torch.nn",
               "functrans.torch.optim", "functrans.torch.linalg", "functrans.torch.fft",
               "functrans.torch.special", "functrans.torch.distributions"],
}


def public(module: ModuleType) -> list[str]:
    """The public names of a module: its ``__all__``, else what it defines itself."""
    own = [
        name for name, x in vars(module).items()
        if not name.startswith("_") and getattr(x, "__module__", None) == module.__name__
        and (inspect.isroutine(x) or inspect.isclass(x))
    ]
    return sorted(set(getattr(module, "__all__", own)))


def documented(module: ModuleType) -> list[str]:
    """Those that can have an entry: functions and classes of this package, with a docstring.

    SciPy's functions whose errors are ours are SciPy's.
    """
    return [
        name for name in public(module)
        if (inspect.isroutine(x := getattr(module, name)) or inspect.isclass(x))
        and _home(x).startswith("functrans") and not _home(inspect.unwrap(x)).startswith("scipy")
        and inspect.getdoc(x)
    ]


def _home(x: object) -> str:
    return str(getattr(x, "__module__", ""))


def page(module: ModuleType, seen: set[type]) -> str:
    """The page of one module, in reStructuredText; classes in ``seen`` have an entry elsewhere."""
    title = module.__name__
    parts = [f"{title}\n{'=' * len(title)}\n", f".. automodule:: {title}\n   :no-members:\n"]
    names = [name for name in documented(module) if getattr(module, name) not in seen]
    parts.append(summary(title, names, module))
    seen |= {x for name in names if inspect.isclass(x := getattr(module, name))}
    parts += [entry(f"{title}.{name}", getattr(module, name)) for name in names]
    rest = [name for name in public(module) if name not in names]
    if rest:
        parts.append("Also in this module: " + ", ".join(f"``{name}``" for name in rest) + ".\n")
    return "\n".join(parts)


def summary(title: str, names: list[str], module: ModuleType) -> str:
    """A table of the names, each with the first sentence of its docstring."""
    rows = "".join(
        f"   * - :py:obj:`~{title}.{name}`\n     - {_first_sentence(getattr(module, name))}\n"
        for name in names
    )
    return f".. list-table::\n   :widths: 1 3\n\n{rows}" if rows else ""


def _first_sentence(x: Any) -> str:
    paragraph = " ".join((inspect.getdoc(x) or "").partition("\n\n")[0].split())
    return _escaped(re.split(r"(?<=\.) ", paragraph)[0])


def entry(name: str, x: Any) -> str:
    if not inspect.isclass(x):
        return f".. autofunction:: {name}\n"
    kind = "exception" if issubclass(x, BaseException) else "class"
    members = "" if kind == "exception" or _is_of_numpy(x) else "   :members:\n"
    return f".. auto{kind}:: {name}\n{members}"


def _is_of_numpy(x: type) -> bool:
    """Array, whose methods are ndarray's."""
    return any(c.__module__ == "numpy" for c in x.__mro__)


def index() -> str:
    """The page that leads to the others."""
    parts = ["API reference\n=============\n", "Every public name, from its docstring.\n"]
    for chapter, modules in CHAPTERS.items():
        listed = "\n".join(f"   {m}" for m in modules)
        parts.append(f".. toctree::\n   :maxdepth: 1\n   :caption: {chapter}\n\n{listed}\n")
    return "\n".join(parts)


def write_reference(app: Any, config: Any) -> None:
    REFERENCE.mkdir(exist_ok=True)
    _write(REFERENCE / "index.rst", index())
    seen: set[type] = set()
    for name in _modules():
        _write(REFERENCE / f"{name}.rst", page(importlib.import_module(name), seen))


def _modules() -> Iterable[str]:
    return (name for modules in CHAPTERS.values() for name in modules)


def _write(path: Path, text: str) -> None:
    """Only what changed is written, so that only that is built again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


LITERAL = re.compile(r"(``.*?``|`[^`]*`_?)", re.DOTALL)


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings write ``|z|`` and ``*args`` as people do; to docutils these are markup."""
    paragraphs = "\n".join(lines).split("\n\n")
    for i, paragraph in enumerate(paragraphs):
        shown = i and paragraphs[i - 1].endswith("::")
        if not shown and not paragraph.lstrip().startswith(">>>"):
            paragraphs[i] = _escaped(paragraph)
    lines[:] = "\n\n".join(paragraphs).split("\n")


def _escaped(text: str) -> str:
    """``text`` with backslashes before what is not in backquotes."""
    parts = LITERAL.split(text)
    parts[::2] = [re.sub(r"(?<!\\)[|*]", r"\\\g<0>", part) for part in parts[::2]]
    return "".join(parts)


NAME = re.compile(r"(?:ft\.|functrans\.)?([A-Za-z_][\w.]*)(?:\(.*\))?", re.DOTALL)


def link_names(app: Any, tree: nodes.document, docname: str) -> None:
    """Names in backquotes lead to their entries."""
    known = app.env.domains["py"].objects
    for literal in list(tree.findall(nodes.literal)):
        if _inside(literal, nodes.reference, nodes.title) or _of_a_peer(literal, docname):
            continue
        match = NAME.fullmatch(literal.astext())
        target = match and known.get(f"functrans.{match[1]}")
        if target:
            uri = app.builder.get_relative_uri(docname, target.docname)
            link = nodes.reference(
                "", "", refuri=f"{uri}#{target.node_id}", internal=True)
            literal.replace_self(link)
            link += literal


def _of_a_peer(literal: nodes.literal, docname: str) -> bool:
    """In the first column of a page for movers, where names are those of another library."""
    return docname.startswith("howto/") and any(
        isinstance(node, nodes.entry) and node.parent.index(node) == 0 for node in _above(literal)
    )


def _above(node: nodes.Node) -> Iterable[nodes.Node]:
    while node is not None:
        yield node
        node = node.parent


def _inside(node: nodes.Node, *kinds: type) -> bool:
    return any(isinstance(above, kinds) for above in _above(node))


def without_ways_back(app: Any, name: str, template: str, context: dict, tree: Any) -> None:
    """Sources without links to entries: viewcode has wrong ones for what has several names."""
    if name.startswith("_modules/"):
        context["body"] = re.sub(r'<a class="viewcode-back".*?</a>', "", context["body"])


def setup(app: Any) -> dict:
    app.connect("config-inited", write_reference)
    app.connect("autodoc-process-docstring", escape)
    app.connect("doctree-resolved", link_names)
    app.connect("html-page-context", without_ways_back)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
