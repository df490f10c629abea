"""``numpy.lib.stride_tricks``: NumPy's functions, of which ``sliding_window_view`` dispatches."""

from numpy.lib.stride_tricks import as_strided, sliding_window_view

__all__ = ["as_strided", "sliding_window_view"]
