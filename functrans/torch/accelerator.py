"""``torch.accelerator``: there is none."""

from __future__ import annotations


def is_available() -> bool:
    """False: there is only the CPU."""
    return False


def device_count() -> int:
    """0: there is only the CPU."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """None: there is only the CPU."""


__all__ = ["current_accelerator", "device_count", "is_available"]
