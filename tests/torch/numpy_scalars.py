"""Types of results of calls with a scalar of NumPy's, for ``test_numpy_scalars``.

``python -m tests.torch.numpy_scalars``, where torch is installed, prints what numpy_scalars.txt has
of PyTorch 2.13: a call, and for each type of the tensor a letter for each scalar.
"""

from pathlib import Path

import numpy as np

TABLE = Path(__file__).with_suffix(".txt")
TYPES = ["bool", "int32", "int64", "float16", "float32", "float64", "complex64"]
SCALARS = [np.bool_(1), np.uint8(1), np.int64(1), np.float16(1), np.float64(1), np.longdouble(1)]
LETTERS = {"bool": "b", "uint8": "B", "int32": "i", "int64": "l", "float16": "e", "float32": "f",
           "float64": "d", "complex32": "E", "complex64": "F", "complex128": "D"}


def letter(torch, code, kind, n):
    """The type of the result of ``code``, "!" for an error. ``x``: a tensor, ``n``: the scalar."""
    d = getattr(torch, kind)
    names = {"torch": torch, "F": torch.nn.functional, "n": n, "i": torch.tensor([0]),
             "x": torch.ones(2, dtype=d), "A": torch.ones(2, 2, dtype=d),
             "m": torch.tensor([True, False])}
    try:
        y = eval(code, names)
    except (TypeError, RuntimeError, ValueError, IndexError):
        return "!"
    y = y[0] if isinstance(y, tuple | list) else y
    return LETTERS[str(getattr(y, "dtype", y)).removeprefix("torch.")]


def row(torch, call):
    """The letters of a call."""
    code = compile(call, "call", "eval")
    return " ".join(["".join([letter(torch, code, kind, n) for n in SCALARS]) for kind in TYPES])


if __name__ == "__main__":
    import torch

    for line in TABLE.read_text().splitlines():
        call = line.rpartition(" | ")[0]
        print(call, "|", row(torch, call))
