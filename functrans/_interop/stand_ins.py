"""A package of ours under the name of another library, for programs that are not to be changed.

Every module is loaded once: ``torch.autograd.function`` is ``functrans.torch.autograd.function``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any


class _Alias(importlib.abc.Loader):
    """Loads a module of ours, which stays the only one, for a name of the library's."""

    def __init__(self, name: str):
        self._name = name

    def create_module(self, spec: Any) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = _rename(importlib.import_module(self._name))


def _rename(module: ModuleType) -> ModuleType:
    """``module`` of ours, with the name that it has in the library."""
    module.__name__ = module.__name__.removeprefix("functrans.")
    return module


class _Finder(importlib.abc.MetaPathFinder):
    """Finds a library and what is under it in a package of ours."""

    def __init__(self, library: str, page: str, parents: Mapping[str, str]):
        self._library, self._page, self._parents = library, page, parents

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        library = self._library
        if fullname != library and not fullname.startswith(f"{library}."):
            return None
        parent = self._parents.get(fullname.removeprefix(f"{library}."))
        ours = (f"functrans.{fullname}" if parent is None
                else f"functrans.{library}.{parent}".rstrip("."))
        if ours not in sys.modules and importlib.util.find_spec(ours) is None:
            raise ModuleNotFoundError(
                f"No module named '{fullname}': functrans.{library}, which is installed as "
                f"{library}, has no such module; {self._page} says what is there", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, _Alias(ours))


def stand_in_for(library: str, page: str, parents: Mapping[str, str]) -> None:
    """Let ``import library`` import ``functrans.library``, in this process, from now on.

    ``page`` says what is there; ``parents`` are modules of the library whose names another module
    of ours has. Raises ImportError where another package of that name has been imported.
    """
    name = f"functrans.{library}"
    ours = importlib.import_module(name)
    there = sys.modules.get(library)
    if there is ours:
        return
    if there is not None:
        raise ImportError(
            f"{name}.install: {library} has been imported already, from "
            f"{getattr(there, '__file__', None)}. Call install() before anything imports it."
        )
    sys.meta_path.insert(0, _Finder(library, page, parents))
    for loaded in [n for n in sys.modules if n == name or n.startswith(f"{name}.")]:
        sys.modules[loaded.removeprefix("functrans.")] = _rename(sys.modules[loaded])


def run_program(library: str, install: Callable[[], None], arguments: list[str]) -> None:
    """``python -m functrans.library``: run the program that ``arguments`` name, after ``install``.

    ``-m module`` runs a module, ``-c code`` a string.
    """
    usage = (f"usage: python -m functrans.{library} (script.py | -m module | -c code) [arguments]")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage)
        sys.exit(0 if arguments else 2)
    install()
    if arguments[0] in ("-m", "-c"):
        if len(arguments) < 2:
            print(usage, file=sys.stderr)
            sys.exit(2)
        what, program, *rest = arguments
        sys.argv[:] = [what if what == "-c" else program, *rest]
        sys.path.insert(0, "")
        if what == "-m":
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        return
    script = Path(arguments[0])
    sys.argv[:] = arguments
    sys.path.insert(0, str(script.resolve().parent))
    runpy.run_path(str(script), run_name="__main__")
