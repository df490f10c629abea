"""Every exception this library raises on purpose. Each is also the builtin one a caller expects.

    FunctransError
    +-- ArgumentError       (TypeError)            a call that does not fit: argnums, structure
    +-- ShapeError          (ValueError)           shapes or sizes that do not fit
    +-- NotDifferentiable   (TypeError)            an output or input that has no derivative
    +-- ConcretizationError (TypeError)            a traced value where Python needs a number
    +-- MemoryAttributeError (AttributeError)      an attribute about an ndarray's memory
    +-- ImmutableError      (TypeError)            assignment into an array
    +-- UnsupportedError    (NotImplementedError)  a NumPy call without a rule
    +-- LeakedTracerError   (RuntimeError)         a traced value used after its transform ended
    +-- OutOfMemoryError    (MemoryError)          a result larger than the memory there is
    +-- CaptureError        (RuntimeError)         a captured array changed before the backward pass
    +-- AnomalyError        (FloatingPointError)   a derivative became NaN in debug.detect_anomaly
    +-- CheckError          (AssertionError)       check_grads found a wrong derivative
    +-- SolverError         (RuntimeError)         a solver found nothing that has a derivative
    +-- ExecutorError       (RuntimeError)         workers or a cluster ended before the work did

and two warnings: KinkWarning (UserWarning), a derivative was taken at a kink while
``config(kinks=...)`` asks for it; MiscompilationWarning (RuntimeWarning), machine code did not
compute its program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType

import numpy as np


class FunctransError(Exception):
    """Base of every error that functrans raises on purpose."""


class ArgumentError(FunctransError, TypeError):
    """A call that does not fit: argnums, structure, kind of value."""


class ShapeError(FunctransError, ValueError):
    """Shapes or sizes that do not fit together."""


class NotDifferentiable(FunctransError, TypeError):
    """An output or input that has no derivative, such as an integer one."""

    has_forward = False  # whether forward mode has the derivative that reverse mode lacks


class ConcretizationError(FunctransError, TypeError):
    """A traced value reached code that needs a plain number."""


class MemoryAttributeError(FunctransError, AttributeError):
    """A traced value was asked for an attribute of an ndarray's memory: ``hasattr`` says no."""


class ImmutableError(FunctransError, TypeError):
    """Assignment into an array that cannot change."""


class UnsupportedError(FunctransError, NotImplementedError):
    """A NumPy function, method or option that has no rule here."""


class LeakedTracerError(FunctransError, RuntimeError):
    """A traced value was used after the transform that made it had ended."""


class OutOfMemoryError(FunctransError, MemoryError):
    """A result would take more memory than is available."""


class CaptureError(FunctransError, RuntimeError):
    """An array that the backward pass needs was changed after it was used."""


class AnomalyError(FunctransError, FloatingPointError):
    """A derivative became NaN while ``debug.detect_anomaly`` was on."""


class CheckError(FunctransError, AssertionError):
    """check_grads found derivatives that disagree."""


class SolverError(FunctransError, RuntimeError):
    """A solver has not converged, or to what is no isolated solution and has no derivative."""


class ExecutorError(FunctransError, RuntimeError):
    """An executor or a cluster ended before all chunks of the work were computed."""


class KinkWarning(UserWarning):
    """A derivative was taken exactly at a kink; see ``config(kinks=...)``."""


class MiscompilationWarning(RuntimeWarning):
    """Fresh machine code did not compute its program, and is not used; see ``config(verify=...)``.
    """


PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# How the file names of frames that are not the user's begin.
_NOT_THE_USERS = (PACKAGE, "<__array_function__", contextlib.__file__,
                  np.errstate.__call__.__code__.co_filename)


def user_frames() -> Iterator[FrameType]:
    """The user's frames, the innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_NOT_THE_USERS):
            yield frame
        frame = frame.f_back


def user_frame() -> FrameType | None:
    """The innermost frame that is neither ours nor NumPy's or SciPy's."""
    frame = sys._getframe(1)
    # this runs for each frame below each equation that is written
    while frame is not None and (id(frame.f_globals) in _passed_over or _is_passed_over(frame)):
        frame = frame.f_back
    return frame


# Namespaces of modules that are not the user's, by identity; held, so that it stays theirs.
_passed_over: dict[int, dict] = {}


def _is_passed_over(frame: FrameType) -> bool:
    found = _is_ours(frame) or _is_of_library(frame)
    names = frame.f_globals
    if found and getattr(sys.modules.get(str(names.get("__name__"))), "__dict__", None) is names:
        _passed_over[id(names)] = names
    return found


def _is_ours(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    made_of_text = path == "<string>" and package_of_frame(frame) == "functrans"
    return made_of_text or path.startswith((PACKAGE, "<__array_function__"))


def _is_of_library(frame: FrameType) -> bool:
    return package_of_frame(frame) in ("numpy", "scipy")


def package_of_frame(frame: FrameType) -> str:
    """The top-level package whose code a frame runs."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def scipy_frames() -> list[FrameType]:
    """SciPy's frames between the user's code and here, the outermost first."""
    frames: list[FrameType] = []
    frame = sys._getframe(1)
    while frame is not None and (_is_ours(frame) or _is_of_library(frame)):
        if package_of_frame(frame) == "scipy":
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def user_line() -> str:
    """``file:line`` of the user's code that is running."""
    frame = user_frame()
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "<unknown line>"


def lost(x: object, use: str) -> str:
    """What to say of a traced value that cannot be used so."""
    return f"{user_line()}: {x!r} cannot {use}: its derivative would be lost"


def shorten(error: BaseException | None) -> None:
    """Take our frames out of the traceback of an error, and all that we called after the user's
    last line; of the errors behind it, too. Mistakes of our own, failed assertions, keep theirs.
    """
    seen: set[int] = set()
    rest = [error]
    while rest:
        e = rest.pop()
        if e is None or id(e) in seen:
            continue
        seen.add(id(e))
        rest += [e.__cause__, e.__context__]
        steps = list(_steps(e.__traceback__))
        if isinstance(e, AssertionError) and steps and _is_hidden(steps[-1].tb_frame):
            continue
        short = None
        for step in reversed(_users(steps)):
            short = TracebackType(short, step.tb_frame, step.tb_lasti, step.tb_lineno)
        e.__traceback__ = short


def _steps(at: TracebackType | None) -> Iterator[TracebackType]:
    while at is not None:
        yield at
        at = at.tb_next


def _users(steps: Sequence[TracebackType]) -> list[TracebackType]:
    """The steps that are not ours, up to where the user's last line called us."""
    mine = [i for i, t in enumerate(steps)
            if not _is_hidden(t.tb_frame) and not _is_of_library(t.tb_frame)]
    last = mine[-1] if mine else -1
    end = next((i for i in range(last + 1, len(steps)) if _is_hidden(steps[i].tb_frame)), None)
    return [t for t in steps[:end] if not _is_hidden(t.tb_frame)]


def _is_hidden(frame: FrameType) -> bool:
    return _is_ours(frame) or frame.f_code.co_filename == contextlib.__file__


def warn(text: str, category: type[Warning] = RuntimeWarning) -> None:
    """A warning at the user's line."""
    frame = user_frame()
    if frame is None:
        warnings.warn(text, category, stacklevel=2)
    else:
        space = frame.f_globals
        warnings.warn_explicit(
            text, category, frame.f_code.co_filename, frame.f_lineno,
            space.get("__name__"), space.setdefault("__warningregistry__", {}),
        )


def name_of(f: object) -> str:
    """The name of ``f`` in messages: its own, that of what it calls, or that of its type."""
    name = getattr(f, "__name__", None)
    if name is None and isinstance(f, functools.partial):
        return name_of(getattr(f, "__wrapped__", f.func))
    return name or type(f).__name__
