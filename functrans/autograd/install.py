"""``install``: the package in the place of autograd, for programs that are not to be changed."""

from __future__ import annotations

from functrans._interop.stand_ins import stand_in_for


def install() -> None:
    """Let ``import autograd`` import this package, in this process, from now on.

    Raises ImportError where another ``autograd`` has been imported. Calling it again changes
    nothing.

    >>> import functrans.autograd
    >>> functrans.autograd.install()
    >>> import autograd.numpy as np
    >>> from autograd import grad
    >>> grad is functrans.autograd.grad
    True
    """
    stand_in_for("autograd", "docs/howto/autograd.md", {})


__all__ = ["install"]
