"""Names of nodes, as ``grad_fn`` shows them."""

from __future__ import annotations

import functools

# Rows whose nodes are known under a shorter name than theirs.
_TITLES = {
    "subtract": "Sub", "multiply": "Mul", "divide": "Div", "negative": "Neg", "power": "Pow",
    "square": "Pow", "absolute": "Abs", "matmul": "Mm", "concatenate": "Cat", "getitem": "Slice",
    "put_add": "SliceBackward", "scatter_set": "IndexPut", "broadcast_to": "Expand",
    "reshape": "View", "transpose": "Permute", "astype": "ToCopy", "arctan2": "Atan2",
}


@functools.cache
def title_of(row: str) -> str:
    return _TITLES.get(row, "".join([w.capitalize() for w in row.split("_")])) + "Backward0"
