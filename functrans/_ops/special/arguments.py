"""Arguments without a derivative, and others that rules of several files need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.errors import NotDifferentiable, user_line


def refused(function: str, argument: str) -> Callable:
    """The action of an argument that has no derivative here: it raises, and names both."""

    def action(g: Any) -> Any:
        raise NotDifferentiable(
            f"{user_line()}: {function} has no derivative in {argument}. Hold it constant, for "
            "example with ft.stop_gradient, or declare the function with its derivative: "
            "ft.custom_jvp."
        )

    return action


__all__ = ["refused"]
