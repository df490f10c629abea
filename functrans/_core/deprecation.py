"""Deprecated names: they warn until the version that they are removed in, and cannot outlive it."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from functrans._core.version import VERSION
from functrans.errors import ArgumentError, name_of

P = ParamSpec("P")
R = TypeVar("R")


def deprecated(
    *, since: str, removed: str, instead: str, version: str = VERSION
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator for a public function that is to be removed.

    A call warns, at the caller's line, what to use ``instead``. From version ``removed`` on, a
    later minor version than ``since``, the decoration itself raises ArgumentError, so that no
    release can still hold the function. ``version`` is that of the package; packages that extend
    this one give theirs.

    >>> @deprecated(since="1.2", removed="1.4", instead="grad(f)", version="1.3.1")
    ... def slope(f):
    ...     return f
    >>> slope.__doc__
    'Deprecated since 1.2, removed in 1.4: use grad(f).'
    """
    if _minor(removed) <= _minor(since):
        raise ArgumentError(
            f"deprecated: removed={removed!r} must be a later minor version than since={since!r}"
        )

    def decorate(f: Callable[P, R]) -> Callable[P, R]:
        if _minor(version) >= _minor(removed):
            raise ArgumentError(
                f"deprecated: `{name_of(f)}` was to be removed in {removed}, and this is "
                f"{version}. Delete it; {instead} takes its place."
            )
        note = f"Deprecated since {since}, removed in {removed}: use {instead}."

        @functools.wraps(f)
        def warning(*args: P.args, **kwargs: P.kwargs) -> R:
            warnings.warn(f"{name_of(f)}: {note}", DeprecationWarning, stacklevel=2)
            return f(*args, **kwargs)

        warning.__doc__ = f"{f.__doc__}\n\n{note}" if f.__doc__ else note
        return warning

    return decorate


def _minor(version: str) -> tuple[int, int]:
    """Major and minor version, as numbers."""
    try:
        major, minor, *_ = (int(part) for part in version.split("."))
    except ValueError:
        raise ArgumentError(
            f"deprecated: {version!r} is no version; write it as '1.2' or '1.2.3'"
        ) from None
    return major, minor
