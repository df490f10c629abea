"""Writes docs/scipy_peers.md: which of SciPy's functions have a counterpart in which library.

``python docs/scipy_peers.py`` writes the page from the table of names and from what is known of
other libraries, docs/scipy_peers.json; a test says when the page is out of date. With ``--look`` it
first looks again at those that are installed, and writes their versions beside their names.
"""

from __future__ import annotations

import importlib
import json
import runpy
import sys
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType

from functrans._core.scipy_names import NAMES

DOCS = Path(__file__).resolve().parent
STORED = DOCS / "scipy_peers.json"
PAGE = runpy.run_path(str(DOCS / "scipy_page.py"))

HEAD = """# SciPy's functions elsewhere

How many of SciPy's functions can be differentiated: here as they are or by import, in
`jax.scipy` and in `autograd.scipy` under the same name. A function counts where the library has
one of that name and, for autograd, a derivative of it; whether the derivative is right is not
asked here. Classes and distributions count as functions. Functions that take no data (windows,
`hilbert`, `dft`) count for JAX, which has them; functrans leaves them to SciPy. What libraries have
under other names is left out: `jax.experimental.ode.odeint`, NumPy's transforms for those of
`scipy.fft`.

Written by `docs/scipy_peers.py` with {versions}.
"""


def look() -> dict[str, dict]:
    """What the libraries that are installed have, with their versions."""
    jax = importlib.import_module("jax")  # only those who look have them
    core = importlib.import_module("autograd.core")
    found = {"jax.scipy": _names_of("jax.scipy", _is_there)}
    modules = [_module(f"autograd.scipy.{n}") for n in NAMES]  # they declare derivatives
    assert any(modules)
    derived = set(core.primitive_vjps)
    found["autograd.scipy"] = _names_of("autograd.scipy", lambda x: _is_derived(x, derived))
    versions = {"jax.scipy": jax.__version__, "autograd.scipy": _version("autograd")}
    return {name: {"version": versions[name], "names": names} for name, names in found.items()}


def _version(package: str) -> str:
    from importlib.metadata import version  # lazy: only those who look ask

    return version(package)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _names_of(library: str, counts: object) -> dict[str, str]:
    """Of SciPy's functions those that a library has, by namespace."""
    names = {}
    for namespace in NAMES:
        module = _module(f"{library}.{namespace}")
        theirs = [] if module is None else [
            name for name in PAGE["functions"](namespace)
            if hasattr(module, name) and counts(getattr(module, name))]  # type: ignore[operator]
        names[namespace] = " ".join(theirs)
    return names


def _is_there(x: object) -> bool:
    return callable(x) or isinstance(x, ModuleType)


def _is_derived(x: object, derived: set) -> bool:
    if isinstance(x, ModuleType):  # a distribution
        return any(f in derived for f in vars(x).values() if isinstance(f, FunctionType))
    return x in derived


def page() -> str:
    """The page."""
    peers = json.loads(STORED.read_text())
    libraries = ["functrans", *peers]
    has = {name: {n: set(peers[name]["names"].get(n, "").split()) for n in NAMES}
           for name in peers}
    has["functrans"] = {n: set(f"{NAMES[n].called} {NAMES[n].ours} {NAMES[n].constant}".split())
                        for n in NAMES}
    versions = ", ".join([f"{name.partition('.')[0]} {peers[name]['version']}" for name in peers])
    parts = [HEAD.format(versions=versions), _counts(libraries, has)]
    parts += [_lists(namespace, libraries, has) for namespace in NAMES]
    return "\n".join([part for part in parts if part])


def _counts(libraries: list[str], has: dict[str, dict[str, set[str]]]) -> str:
    """The table of how many."""
    rows = [["", "SciPy's", *libraries], ["---", *["---:"] * (len(libraries) + 1)]]
    totals = [0] * (len(libraries) + 1)
    for namespace in NAMES:
        names = set(PAGE["functions"](namespace))
        counts = [len(names), *[len(has[name][namespace] & names) for name in libraries]]
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        rows.append([f"`{namespace}`", *map(str, counts)])
    rows.append(["all", *map(str, totals)])
    return "\n".join([f"| {' | '.join(row)} |" for row in rows]) + "\n"


def _lists(namespace: str, libraries: list[str], has: dict[str, dict[str, set[str]]]) -> str:
    """Which of a namespace, by who has them."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(set(PAGE["functions"](namespace))):
        owners = tuple([library for library in libraries if name in has[library][namespace]])
        if owners:
            groups.setdefault(owners, []).append(name)
    parts = []
    for owners in sorted(groups, key=lambda owners: (-len(owners), owners)):
        text = ", ".join([f"`{name}`" for name in groups[owners]])
        lines = textwrap.wrap(text, 100, break_on_hyphens=False)
        parts.append(f"{' and '.join(owners)} ({len(groups[owners])}):\n\n" + "\n".join(lines))
    return f"## scipy.{namespace}\n\n" + "\n\n".join(parts) + "\n" if parts else ""


if __name__ == "__main__":
    if "--look" in sys.argv:
        STORED.write_text(json.dumps(look(), indent=1) + "\n")
    (DOCS / "scipy_peers.md").write_text(page())
