"""Flattening of containers, and functions recorded once."""

from __future__ import annotations

from functrans.autograd._names import missing
from functrans.autograd.misc.flatten import flatten
from functrans.autograd.misc.tracers import const_graph

__all__ = ["const_graph", "flatten"]
__getattr__ = missing(__name__)
