"""``autograd.scipy.integrate``: ``scipy.integrate``'s names, of plain and of traced values."""

from __future__ import annotations

from functrans.scipy import integrate as _ours

globals().update({name: getattr(_ours, name) for name in _ours.__all__})
__all__ = _ours.__all__
__getattr__ = _ours.__getattr__
