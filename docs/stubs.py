"""What editors and type checkers know of ``functrans.numpy``, whose names come from tables.

``python docs/stubs.py`` writes a ``.pyi`` file beside each such module; a test compares them with
what this makes, and the types of results with what the functions return.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import functrans.numpy as fnp

MODULES = (fnp, fnp.linalg, fnp.fft, fnp.emath)
# What a function returns where that is not an Array; Any: that depends on its options.
RETURNS = dict.fromkeys(
    ["allclose", "array_equal", "array_equiv", "can_cast", "iscomplexobj", "isdtype", "isrealobj",
     "isscalar", "issubdtype", "iterable"], "builtins.bool",
)
RETURNS |= dict.fromkeys(["array2string", "array_repr", "array_str"], "str")
RETURNS |= dict.fromkeys(
    ["array_split", "dsplit", "hsplit", "split", "vsplit"], "list[Array]",
)
RETURNS |= dict.fromkeys(
    ["broadcast_arrays", "diag_indices", "diag_indices_from", "divmod", "frexp", "histogram2d",
     "ix_", "mask_indices", "meshgrid", "modf", "nonzero", "polydiv", "tril_indices",
     "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index", "unstack"],
    "tuple[Array, ...]",
)
RETURNS |= dict.fromkeys(["broadcast_shapes", "shape"], "tuple[int, ...]")
RETURNS |= dict.fromkeys(["ndim", "size"], "int") | {"geterr": "dict[str, str]"}
RETURNS |= dict.fromkeys(
    ["common_type", "copyto", "fill_diagonal", "finfo", "from_dlpack", "get_printoptions",
     "geterrcall", "gradient", "histogram", "histogramdd", "iinfo", "indices", "intersect1d",
     "linspace", "min_scalar_type", "place", "printoptions", "promote_types", "put",
     "put_along_axis", "putmask", "result_type", "set_printoptions", "unique", "unique_all",
     "unique_counts", "unique_inverse", "where", "average", "polyfit", "cov", "apply_along_axis",
     "linalg.eig", "linalg.eigh", "linalg.lstsq", "linalg.qr", "linalg.slogdet", "linalg.svd",
     "linalg.matrix_rank", "nditer"],
    "Any",
)
# Names that are NumPy's own, those that programs use.
PASSED_ON = (
    "True_", "False_", "einsum_path", "frombuffer", "fromfile", "frompyfunc",
    "genfromtxt", "index_exp", "isfortran", "lib", "load", "loadtxt", "ma",
    "may_share_memory", "packbits", "poly1d", "random", "require", "save", "savetxt",
    "savez", "savez_compressed",
    "seterr", "shares_memory", "testing", "typing", "ufunc", "unpackbits",
)
# Parameters that take whatever can become an array, by their names.
OPERANDS = {
    "a", "a1", "a2", "ar", "ar1", "ar2", "arr", "array", "ary", "b", "condition", "element", "f",
    "fp", "m", "object", "p", "q", "sample", "u", "v", "val", "values", "w", "weights", "x", "x1",
    "x2", "xp", "y", "z",
}
TYPES = dict.fromkeys(OPERANDS, "ArrayLike") | {"dtype": "DTypeLike"}
IMPORTS = {
    "builtins.": "import builtins", "Any": "from typing import Any",
    "ArrayLike": "from numpy.typing import ArrayLike",
    "DTypeLike": "from numpy.typing import DTypeLike",
    "Array": "from functrans._core.array import Array",
}


def stub(module: ModuleType) -> str:
    """The text of a module's ``.pyi`` file."""
    place = module.__name__.removeprefix("functrans.numpy").lstrip(".")
    theirs = np.emath if place == "emath" else getattr(np, place) if place else np
    lines = [_line(module, theirs, place, name) for name in sorted(module.__all__)]
    if module is fnp:
        lines += [f"from numpy import {name} as {name}" for name in PASSED_ON]
    lines.sort(key=lambda line: not line.startswith("from "))
    used = [text for name, text in IMPORTS.items() if re.search(rf"\b{name}", "\n".join(lines))]
    return "\n".join(
        [f'"""Types of {module.__name__}, written by docs/stubs.py."""', "", *used, "", *lines, "",
         "__all__: list[str]", ""]
    )


def _line(module: ModuleType, theirs: Any, place: str, name: str) -> str:
    x = getattr(module, name)
    if isinstance(x, ModuleType):
        return f"from functrans.numpy import {name} as {name}"
    if not inspect.isfunction(x):
        if getattr(theirs, name, None) is x:
            return f"from {theirs.__name__} import {name} as {name}"
        if isinstance(x, type) and x.__module__.startswith("functrans"):
            return f"from {x.__module__} import {x.__name__} as {name}"
        return f"{name}: {type(x).__name__ if type(x).__module__ == 'builtins' else 'Any'}"
    returns = RETURNS.get(f"{place}.{name}" if place else name, "Array")
    return f"def {name}({_parameters(x, getattr(theirs, name, None))}) -> {returns}: ..."


def _parameters(f: Any, theirs: Any) -> str:
    """The parameters of a function; a ufunc is named but not described by its own signature."""
    if isinstance(theirs, np.ufunc):
        operands = [f"x{i + 1}" for i in range(theirs.nin)] if theirs.nin > 1 else ["x"]
        taken = ", ".join([f"{x}: ArrayLike" for x in operands])
        return f"{taken}, /, out: Any = ..., **options: Any"
    parts, slash, star = [], False, False
    for p in inspect.signature(f).parameters.values():
        if slash and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
            slash = False
        slash = slash or p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or p.kind is p.VAR_POSITIONAL
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else " = ..."
        type_ = "Any" if mark else TYPES.get(p.name, "Any")
        optional = " | None" if default and type_ != "Any" else ""
        parts.append(f"{mark}{p.name}: {type_}{optional}{default}")
    return ", ".join([*parts, "/"] if slash else parts)


def path_of(module: ModuleType) -> Path:
    """Where a module's ``.pyi`` file lies."""
    assert module.__file__ is not None, module
    return Path(module.__file__).with_suffix(".pyi")


if __name__ == "__main__":
    for each in MODULES:
        path_of(each).write_text(stub(each))
