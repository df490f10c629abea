"""Blocks of ``functrans.patch``, as far as the core has to know of them."""

from __future__ import annotations

from contextvars import ContextVar

# How many blocks this context is in: functions are then followed always.
patched: ContextVar[int] = ContextVar("patched", default=0)
