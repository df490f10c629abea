"""``torch.signal``: window functions."""

from functrans.torch.signal import windows

__all__ = ["windows"]
