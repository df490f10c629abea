"""``save`` and ``load``: tensors and containers of them in a file, of which no code is run.

A zip archive: ``tree.json`` says how values are nested, ``0.npy``, ``1.npy``, ... are the tensors.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np

from functrans.torch._functions.shapes import require_cpu
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import Size, device
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn.parameter import Parameter

File = str | os.PathLike | IO[bytes]
# what ``map_location`` of torch may be, for annotations
MAP_LOCATION = Callable[[Any, str], Any] | device | str | dict[str, str] | None
FORMAT = "functrans.torch 1"
_PLAIN = (type(None), bool, int, float, str)
_KINDS = {list: "list", tuple: "tuple", set: "set", Size: "size"}
_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "size": Size}


def add_safe_globals(safe_globals: list) -> None:
    """Accepted: no code of a file is run, whatever its classes."""


clear_safe_globals = nullcontext


def get_safe_globals() -> list:
    """Nothing: no class is made of what a file names."""
    return []


def safe_globals(safe_globals: list) -> nullcontext:
    """A context that changes nothing."""
    return nullcontext()


def save(obj: Any, f: File, **options: Any) -> None:
    """Write tensors, numbers, strings and containers of them to a file.

    >>> import io
    >>> from functrans import torch
    >>> file = io.BytesIO()
    >>> torch.save({"w": torch.ones(2), "epoch": 3}, file)
    >>> torch.load(file)
    {'w': tensor([1., 1.]), 'epoch': 3}

    Of modules and optimisers save the ``state_dict()``. Raises TypeError for anything else.
    """
    arrays: list[np.ndarray] = []
    tree = {"format": FORMAT, "value": _write(obj, arrays, {})}
    with zipfile.ZipFile(_path(f), "w") as archive:
        archive.writestr("tree.json", json.dumps(tree))
        for i, array in enumerate(arrays):
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(f"{i}.npy", member.getvalue())


def _path(f: File) -> str | IO[bytes]:
    return str(Path(f)) if isinstance(f, str | os.PathLike) else f


def _write(x: Any, arrays: list[np.ndarray], seen: dict[int, Any]) -> Any:
    """``x`` as JSON: plain values as they are, all else as {kind: content}."""
    if type(x) in _PLAIN:
        return x
    if isinstance(x, Tensor):
        if id(x) not in seen:
            array = np.array(x._array, order="C")
            bits = array.view(np.uint16) if x.dtype is dtypes.bfloat16 else array
            arrays.append(bits)
            seen[id(x)] = {"tensor": [len(arrays) - 1, x.dtype.name, x.requires_grad,
                                      isinstance(x, Parameter)]}
        return seen[id(x)]
    if isinstance(x, dict):
        kind = "ordered" if isinstance(x, OrderedDict) else "dict"
        return {kind: [[_write(k, arrays, seen), _write(v, arrays, seen)]
                       for k, v in x.items()]}
    if type(x) in _KINDS:
        return {_KINDS[type(x)]: [_write(v, arrays, seen) for v in x]}
    if isinstance(x, dtypes.dtype):
        return {"dtype": x.name}
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if isinstance(x, np.generic):
        return _write(x.item(), arrays, seen)
    raise TypeError(
        f"save: a {type(x).__name__} cannot be written; only tensors, numbers, strings and "
        "containers of them can. Of a module or an optimiser save the state_dict()."
    )


def load(f: File, map_location: Any = None, **options: Any) -> Any:
    """What ``save`` has written. Raises RuntimeError for a file of another kind."""
    require_cpu("load", map_location if isinstance(map_location, str) else None)
    try:
        with zipfile.ZipFile(_path(f)) as archive:
            tree = json.loads(archive.read("tree.json"))
            return _read(tree["value"], archive, {})
    except (zipfile.BadZipFile, KeyError, json.JSONDecodeError) as failure:
        raise RuntimeError(
            "load: this is no file that functrans.torch.save has written. Files of PyTorch hold "
            "programs for pickle; there, write np.savez of the arrays, and read that."
        ) from failure


def _read(x: Any, archive: zipfile.ZipFile, seen: dict[int, Tensor]) -> Any:
    if not isinstance(x, dict):
        return x
    ((kind, content),) = x.items()
    if kind == "tensor":
        number, *about = content
        if number not in seen:
            seen[number] = _tensor(archive, number, *about)
        return seen[number]
    if kind in ("dict", "ordered"):
        pairs = [(_read(k, archive, seen), _read(v, archive, seen)) for k, v in content]
        return OrderedDict(pairs) if kind == "ordered" else dict(pairs)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind]([_read(v, archive, seen) for v in content])
    if kind == "dtype":
        return next(d for d in dtypes.ALL if d.name == content)
    if kind == "complex":
        return complex(*content)
    raise KeyError(kind)


def _tensor(archive: zipfile.ZipFile, number: int, name: str, requires: bool,
            parameter: bool) -> Tensor:
    member = io.BytesIO(archive.read(f"{number}.npy"))
    array = np.lib.format.read_array(member, allow_pickle=False)
    if name == "bfloat16":
        array = array.view(dtypes.BFLOAT16)
    t = from_array(array)
    if parameter:
        return Parameter(t, requires)
    return t.requires_grad_() if requires else t


__all__ = ["load", "save"]
