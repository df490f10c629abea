"""Recursive filters after ``scipy.signal``, differentiated in signals, coefficients and states.

The filter itself is one row, whose value SciPy computes; initial and final states are sums of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import signal

from functrans._core.bind import AnyArray, Tracer, bind, known_value
from functrans._ops import filters as rows
from functrans._ops.structure import along, move_axis
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand, one_axis
from functrans.scipy.public import counterpart
from functrans.scipy.signal.convolution import convolve

ss: Any = signal  # its types say less than its functions take

# ---- one filter


@counterpart(ss.lfilter)
def lfilter(b, a, x, axis=-1, zi=None):
    """The filter with taps ``b`` and ``a`` along ``axis``; with ``zi`` also its final state.

    It is differentiated in all four.

    >>> import functrans as ft
    >>> ft.grad(lambda b: lfilter(b, [1.0, -0.5], np.ones(3)).sum())(np.ones(2))
    Array([4.25, 2.5 ])
    """
    b, a, x = _taps("b", b), _taps("a", a), _signal(x)
    axis = one_axis(axis, x.ndim)
    x = move_axis(x, axis, -1)
    _require_float(b, a, x)
    if zi is None:
        return move_axis(bind(rows.lfilter, b, a, x), -1, axis)
    y, zf = _from_state(b, a, x, move_axis(_state(zi, x, b, a, axis), axis, -1))
    return move_axis(y, -1, axis), move_axis(zf, -1, axis)


def _taps(name: str, x: Any) -> AnyArray:
    x = np.atleast_1d(as_operand(x))
    if not (x.ndim == 1 and x.size):
        raise ValueError(f"Parameter {name} is not a non-empty 1d array, since "
                         f"{name}.shape={x.shape}!")
    return x


def _signal(x: Any) -> AnyArray:
    x = as_operand(x)
    if not x.ndim:
        raise ValueError("x must be at least 1-D")
    return x


def _normalise(b: Any, a: Any) -> tuple[Any, Any]:
    """Taps whose first one of ``a`` is 1, without zeros before it where they are known."""
    if (lead := known_value(a)) is not None:
        if not np.any(lead):
            raise ValueError("There must be at least one nonzero `a` coefficient.")
        a = a[int(np.argmax(lead != 0)) :]
    return b / a[0], a / a[0]


def _require_float(*xs: Any) -> None:
    dtype = np.result_type(*[x.dtype for x in xs])
    if dtype.char not in "fdgFDG":
        raise NotImplementedError(
            f"Parameter's dtypes produced result type '{dtype}', which is not supported!"
        )


def _state(zi: Any, x: Any, b: Any, a: Any, axis: int) -> AnyArray:
    """The initial state, of the shape that it has."""
    zi = as_operand(zi)
    shape = list(x.shape[:-1])
    shape.insert(axis, max(len(a), len(b)) - 1)
    if zi.ndim != x.ndim:
        if len(a) > 1:
            raise ValueError("object of too small depth for desired array"
                             if zi.ndim < x.ndim else "object too deep for desired array")
        raise ValueError(f"Dimensions of parameters x and zi must match, but x.ndim={x.ndim}, "
                         f"zi.ndim={zi.ndim}!")
    if any(m not in (1, n) or (i == axis and m != n)
           for i, (m, n) in enumerate(zip(zi.shape, shape, strict=True))):
        raise ValueError(f"Unexpected shape for parameter zi: expected {tuple(shape)}, found "
                         f"{zi.shape}.")
    return np.broadcast_to(zi, shape)


def _resize(x: Any, n: int) -> AnyArray:
    """The first ``n`` entries of the last axis, with zeros behind where there are fewer."""
    have = x.shape[-1]
    return x[..., :n] if have >= n else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - have)])


def _from_state(b: Any, a: Any, x: Any, zi: Any) -> tuple[Any, Any]:
    """Along the last axis, from the state ``zi`` to the state that is returned with the output.

    The state is what the output would go on with, were nothing more to come.
    """
    n, order = x.shape[-1], zi.shape[-1]
    y = bind(rows.lfilter, b, a, x)
    y = y + bind(rows.lfilter, np.ones(1, y.dtype), a, a[0] * _resize(zi, n))
    rest = zi[..., n:]
    zf = np.pad(rest, [(0, 0)] * (zi.ndim - 1) + [(0, order - rest.shape[-1])])
    for taps, u, sign in [(b, x, 1), (a, y, -1)]:
        later = _behind(taps[1:] / a[0], u, order)
        zf = zf + sign * later if later is not None else zf
    return y, zf


def _behind(taps: Any, x: Any, order: int) -> AnyArray | None:
    """What a filter without feedback gives after the end of ``x``, one sample late."""
    n = x.shape[-1]
    if not (len(taps) and x.size):
        return None
    taps = taps.reshape((1,) * (x.ndim - 1) + (-1,))
    full = convolve(x[..., -min(n, order) :], taps, method="direct")
    return _resize(full[..., min(n, order) - 1 :], order)


@counterpart(ss.lfilter_zi)
def lfilter_zi(b, a):
    """The state in which the filter answers a constant 1 with a constant."""
    b, a = np.atleast_1d(as_operand(b)), np.atleast_1d(as_operand(a))
    if not a.ndim == b.ndim == 1:
        raise ValueError("Numerator `b` and Denominator `a` must be 1-D arrays, "
                         f"but b.shape = {b.shape}, a.shape = {a.shape}!")
    b, a = _normalise(b, a)
    n = max(len(a), len(b))
    b, a = _resize(b, n), _resize(a, n)
    # the sums of the equations of SciPy, in which all but the first unknown cancel
    moved = b[1:] - a[1:] * b[0]
    zi = np.sum(moved) / np.sum(a)
    sums = np.cumsum(a)[: n - 1]
    passed = np.concatenate([np.zeros(1, moved.dtype), np.cumsum(moved)[: n - 2]])
    return sums * zi - passed


@counterpart(ss.lfiltic)
def lfiltic(b, a, y, x=None):
    """The state of a filter after outputs ``y`` and inputs ``x``, the latest first.

    >>> import functrans as ft, numpy as np
    >>> ft.grad(lambda y: lfiltic([1.0], [1.0, -0.9], y)[0])(np.array([2.0]))
    Array([0.9])
    """
    b, a, y = [np.atleast_1d(as_operand(v)) for v in (b, a, y)]
    x = np.zeros(0, b.dtype) if x is None else np.atleast_1d(as_operand(x))
    b, a = _normalise(b, a)
    m, n = len(b) - 1, len(a) - 1
    x, y = _resize(x, m), _resize(y, n)
    state = [np.sum(b[k + 1 :] * x[: max(m - k, 0)]) - np.sum(a[k + 1 :] * y[: max(n - k, 0)])
             for k in range(max(m, n))]
    return np.stack(state) if state else np.zeros(0)


# ---- forth and back


def _extend(x: Any, padtype: Any, padlen: Any, axis: int, ntaps: int) -> tuple[int, Any]:
    if padtype not in ("even", "odd", "constant", None):
        raise ValueError(f"Unknown value '{padtype}' given to padtype. padtype must be 'even', "
                         "'odd', 'constant', or None.")
    edge = 0 if padtype is None else 3 * ntaps if padlen is None else padlen
    if x.shape[axis] <= edge:
        raise ValueError("The length of the input vector x must be greater than padlen, which is "
                         f"{edge}.")
    return edge, extended(x, padtype, edge, axis)


def extended(x: Any, kind: str | None, edge: int, axis: int) -> AnyArray:
    """``x`` with ``edge`` samples more at both ends: "even", "odd", "constant" or "zeros"."""
    if not edge or kind is None:
        return x
    widths = [(edge, edge) if i == axis else (0, 0) for i in range(x.ndim)]
    if kind in ("even", "odd"):
        return np.pad(x, widths, "reflect", reflect_type=kind)
    return np.pad(x, widths, "edge" if kind == "constant" else "constant")


def _forth_and_back(run: Any, zi: Any, ext: Any, axis: int, edge: int) -> AnyArray:
    y = run(ext, zi * ext[along(axis, slice(1))])[0]
    y = np.flip(y, axis)
    y = np.flip(run(y, zi * y[along(axis, slice(1))])[0], axis)
    return y[along(axis, slice(edge, y.shape[axis] - edge))]


@counterpart(ss.filtfilt)
def filtfilt(b, a, x, axis=-1, padtype="odd", padlen=None, method="pad", irlen=None):
    """The filter applied forward and backward, which keeps phases; with ``method="pad"``."""
    if method not in ("pad", "gust"):
        raise ValueError("method must be 'pad' or 'gust'.")
    if method == "gust":
        raise UnsupportedError(f"{user_line()}: filtfilt got method='gust' beside a traced value; "
                               "it is differentiated with method='pad'.")
    b, a, x = _taps("b", b), _taps("a", a), as_operand(x)
    axis = one_axis(axis, x.ndim)
    edge, ext = _extend(x, padtype, padlen, axis, max(len(a), len(b)))
    zi = lfilter_zi(b, a)
    zi = zi.reshape((-1,) + (1,) * (x.ndim - 1 - axis))

    def run(u: Any, state: Any) -> Any:
        return lfilter(b, a, u, axis, state)

    return _forth_and_back(run, zi, ext, axis, edge)


# ---- sections of second order


def _sections(sos: Any) -> AnyArray:
    sos = np.atleast_2d(as_operand(sos))
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    if not isinstance(sos, Tracer) and not (sos[:, 3] == 1).all():
        raise ValueError("sos[:, 3] should be all ones")
    return sos


@counterpart(ss.sosfilt)
def sosfilt(sos, x, axis=-1, zi=None):
    """The filter with sections of second order; with ``zi`` also its final state.

    It is differentiated in all of ``sos``, as if sections could have a ``sos[:, 3]`` other than 1.
    """
    sos, x = _sections(sos), _signal(x)
    axis = one_axis(axis, x.ndim)
    _require_float(sos, x)
    if zi is None:
        for section in sos:
            x = lfilter(section[:3], section[3:], x, axis)
        return x
    zi = as_operand(zi)
    shape = (len(sos), *x.shape[:axis], 2, *x.shape[axis + 1 :])
    if zi.shape != shape:
        raise ValueError(f"Invalid zi shape. With axis={axis}, an input with shape {x.shape}, and "
                         f"an sos array with {len(sos)} sections, zi must have shape {shape}, got "
                         f"{zi.shape}.")
    states = []
    for section, state in zip(sos, zi, strict=True):
        x, last = lfilter(section[:3], section[3:], x, axis, state)
        states.append(last)
    return x, np.stack(states)


@counterpart(ss.sosfilt_zi)
def sosfilt_zi(sos):
    """The states in which the sections answer a constant 1 with constants."""
    sos = as_operand(sos)
    if sos.ndim != 2 or sos.shape[1] != 6:
        raise ValueError("sos must be shape (n_sections, 6)")
    zi, scale = [], 1.0
    for section in sos:
        b, a = section[:3], section[3:]
        zi.append(scale * lfilter_zi(b, a))
        scale = scale * (np.sum(b) / np.sum(a))
    return np.stack(zi)


@counterpart(ss.sosfiltfilt)
def sosfiltfilt(sos, x, axis=-1, padtype="odd", padlen=None):
    """The filter with sections of second order, applied forward and backward."""
    sos, x = _sections(sos), _signal(x)
    axis = one_axis(axis, x.ndim)
    sections = known_value(sos)
    if sections is None and padlen is None and padtype is not None:
        raise UnsupportedError(f"{user_line()}: sosfiltfilt got sections whose numbers are not "
                               "known here, and counts those of first order: pass padlen.")
    ntaps = 2 * len(sos) + 1
    if sections is not None:
        ntaps -= min((sections[:, 2] == 0).sum(), (sections[:, 5] == 0).sum())
    edge, ext = _extend(x, padtype, padlen, axis, ntaps)
    zi = sosfilt_zi(sos)
    zi = zi.reshape((len(sos), *(1,) * axis, 2, *(1,) * (x.ndim - 1 - axis)))

    def run(u: Any, state: Any) -> Any:
        return sosfilt(sos, u, axis, state)

    return _forth_and_back(run, zi, ext, axis, edge)
