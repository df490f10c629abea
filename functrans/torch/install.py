"""``install``: the shim under the name ``torch``, for programs that are not to be changed."""

from __future__ import annotations

import importlib

from functrans._interop.stand_ins import stand_in_for
from functrans.torch._names import PARENTS


def install() -> None:
    """Let ``import torch`` import the shim, in this process, from now on.

    Raises where another ``torch`` has been imported. Calling it again changes nothing.

    >>> from functrans.torch import install
    >>> install()
    >>> import torch.autograd.function
    >>> torch.autograd.function.Function is torch.autograd.Function
    True
    >>> torch.__name__
    'torch'
    """
    stand_in_for("torch", "docs/torch.md", PARENTS)
    # by which other libraries tell whose an array is
    importlib.import_module("functrans.torch").Tensor.__module__ = "torch"


__all__ = ["install"]
