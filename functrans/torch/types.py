"""``torch.types``: names for annotations."""

from __future__ import annotations

import os
from typing import IO, Any

from functrans.torch._tensors.dtypes import Size, device
from functrans.torch._tensors.tensor import Tensor

Number = int | float | bool
Device = device | str | int | None
FileLike = str | os.PathLike | IO[bytes]
Storage = Any  # there are none

__all__ = ["Device", "FileLike", "Number", "Size", "Storage", "Tensor"]
