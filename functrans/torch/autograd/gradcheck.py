"""``gradcheck`` and ``gradgradcheck``: what the engine computes against small differences.

Inputs of double precision are expected; nothing is changed in them, nor in their ``grad``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from functrans.errors import FunctransError, name_of
from functrans.torch._graph.engine import as_tuple, grad
from functrans.torch._tensors.sparse import SparseTensor
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.autograd.differences import (
    analytical_jacobian,
    axes_of,
    batched,
    expected_rows,
    forward_slopes,
    from_undefined,
    get_analytical_jacobian,
    get_numerical_jacobian,
    leaf_of,
    numerical_jacobian,
    numerical_slope,
    outputs_of,
    overlaps,
    seeds_of,
    vjp,
)

# What a backward, or a rule in it, that was not written for such a call may raise.
FAILURES = (FunctransError, RuntimeError, TypeError, ValueError, AttributeError, IndexError)


_UNDEFINED = "Expected backward function to handle undefined output grads."
_BATCHED = "gradcheck or gradgradcheck failed while testing batched gradient computation."


class GradcheckError(RuntimeError):
    """``gradcheck`` found a gradient that is wrong."""


@dataclass(frozen=True)
class _Options:
    eps: float
    atol: float
    rtol: float
    sparse: bool
    nondet_tol: float
    undefined: bool
    dtypes: bool
    batched: bool
    forward: bool
    backward: bool
    fast: bool


class _Check:
    """One function at one point, and what it returned there."""

    def __init__(self, f: Callable, inputs: tuple, options: _Options):
        self.f, self.inputs, self.options = f, inputs, options
        self.places = _checked_inputs(inputs, options.sparse)
        self.leaves = [leaf_of(inputs[i]) for i in self.places]
        before = [x._array.copy() if isinstance(x, Tensor) else None for x in inputs]
        self.ys = self.call()
        for i, (x, old) in enumerate(zip(inputs, before, strict=True)):
            if old is not None and not _same(x._array, old, 0.0):
                raise ValueError(
                    f"gradcheck: `{name_of(f)}` changed input {i}. The numerical derivative calls "
                    "it many times on the same input: let it change a clone() instead."
                )
        self.outputs = [k for k, y in enumerate(self.ys) if y.requires_grad]
        self._rows: dict[tuple, list] = {}

    def rows(self, k: int, seed: complex) -> list:
        """The Jacobians of output ``k``, by the engine."""
        if (k, seed) not in self._rows:
            rows, last = analytical_jacobian(self.ys[k], self.leaves, seed)
            _check_form(self, last)
            self._rows[k, seed] = rows
        return self._rows[k, seed]

    def call(self) -> tuple:
        ys = outputs_of(self.f(*self.inputs))
        for k, y in enumerate(ys):
            if isinstance(y, SparseTensor):
                raise ValueError(
                    "Sparse output is not supported at gradcheck yet. Return the to_dense() of "
                    f"output {k} of `{name_of(self.f)}`."
                )
            if not isinstance(y, Tensor):
                raise ValueError(
                    f"gradcheck expects `{name_of(self.f)}` to return a Tensor or a tuple of "
                    f"Tensors, but output {k} is of type {type(y).__name__}"
                )
        return tuple([y for y in ys if y.is_floating_point() or y.is_complex()])


def _checked_inputs(inputs: tuple, sparse: bool) -> list[int]:
    """The positions of the inputs that are checked, one of each tensor."""
    places, seen = [], set()
    for i, x in enumerate(inputs):
        if isinstance(x, SparseTensor) and not sparse:
            raise GradcheckError(
                "gradcheck expects all tensor inputs are dense when check_sparse_nnz is set to "
                f"False. Input {i} is sparse; pass True to check it at its stored values."
            )
        if not isinstance(x, Tensor | SparseTensor) or not x.requires_grad:
            continue
        leaf = leaf_of(x)
        if leaf._array.dtype.name not in ("float64", "complex128"):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                f"complex, but {leaf.dtype}. Differences of so few digits are coarse, and the "
                "check will probably fail.",
                UserWarning, stacklevel=5)
        if overlaps(leaf._array):
            what = "a dimension with stride 0" if 0 in leaf.stride() else "overlapping memory"
            raise RuntimeError(
                f"The {i}th input has {what}. Several of its indices are the same number then, and "
                "gradcheck moves each entry alone; call .contiguous() on it before passing it."
            )
        if id(leaf) not in seen:
            seen.add(id(leaf))
            places.append(i)
    if not places:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            "have requires_grad=True."
        )
    return places


def _same(a: Any, b: Any, tol: float) -> bool:
    if tol == 0.0:
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")
    return np.allclose(a, b, rtol=0.0, atol=tol, equal_nan=True)


def gradcheck(func: Callable, inputs: Any, eps: float = 1e-6, atol: float = 1e-5,
              rtol: float = 1e-3, raise_exception: bool = True, check_sparse_nnz: bool = False,
              nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_grad_dtypes: bool = False, check_batched_grad: bool = False,
              check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
              check_backward_ad: bool = True, fast_mode: bool = False,
              masked: bool | None = None) -> bool:
    """Compare the gradients of ``func`` at ``inputs`` with central differences of step ``eps``.

    Checked are the inputs that require gradients, of floating or complex type; a complex output is
    checked for the output gradients 1 and 1j, in the Wirtinger sense. Entries agree within
    ``atol + rtol * |numerical|``. The options: sparse inputs, at their stored values
    (``check_sparse_nnz``, or ``masked``); a repeated backward agrees within ``nondet_tol``; an
    undefined output gradient is as good as zeros; gradients have the type of their input; a batch
    of output gradients gives what one after the other gives, as far as they are at once (custom
    functions get one after the other in any case); ``check_forward_ad``, the tangents that
    ``forward_ad`` computes; ``fast_mode``, random projections instead of every entry.

    Returns True, or raises GradcheckError naming the entry; False with ``raise_exception=False``.

    >>> from functrans import torch
    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradcheck(torch.sin, (x,))
    True
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("gradcheck: check_batched_grad=True needs check_backward_ad=True")
    if check_batched_forward_grad:
        raise NotImplementedError("gradcheck: check_batched_forward_grad=True is not supported; "
                                  "check_forward_ad=True checks one tangent after the other")
    options = _Options(eps, atol, rtol, check_sparse_nnz or bool(masked), nondet_tol,
                       check_undefined_grad and check_backward_ad, check_grad_dtypes,
                       check_batched_grad, check_forward_ad, check_backward_ad, fast_mode)
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    try:
        _run(_Check(func, args, options))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _run(check: _Check) -> None:
    if not all([_same(a._array, b._array, check.options.nondet_tol)
                for a, b in zip(check.ys, check.call(), strict=True)]):
        name = name_of(check.f)
        start = "Backward is not reentrant: " if name.startswith("the gradient of ") else ""
        raise GradcheckError(
            f"{start}`{name}` is not deterministic: called twice with the same inputs it returned "
            "different values."
        )
    compare = _compare_projections if check.options.fast else _compare_entries
    for at in range(len(check.leaves)):
        compare(check, at)
    if not check.options.backward:
        return
    if check.options.undefined:
        _check_undefined(check)
    for k in check.outputs:
        _check_repeats(check, k)
        _check_seeds(check, k)
        if check.options.batched:
            _check_batched(check, k)


# ---- values


def _compare_entries(check: _Check, at: int) -> None:
    """Every entry of the Jacobians in one input."""
    options, place, leaf = check.options, check.places[at], check.leaves[at]
    numerical = numerical_jacobian(check.call, leaf, options.eps)
    columns: list = []
    for k, (y, ways) in enumerate(zip(check.ys, numerical, strict=True)):
        if k not in check.outputs:
            if any((np.abs(way) > options.atol).any() for way in ways):
                raise GradcheckError(
                    f"Numerical gradient for function expected to be zero: output {k} does not "
                    f"require gradients, but it changes with input {place}"
                )
            continue
        for seed in seeds_of(y):
            expected = expected_rows(ways, seed)
            if options.backward:
                rows = check.rows(k, seed)
                _compare(check, place, k, seed, "Jacobian", rows[at], expected)
        if options.forward:
            columns = columns or [_columns(check, place, way) for way in axes_of(leaf)]
            for found, want in zip(columns, ways, strict=True):
                got = np.array([ts[k].reshape(-1) for ts in found]).reshape(len(found), y.numel())
                _compare(check, place, k, 1.0, "Jacobian computed with forward mode", got.T, want.T)


def _columns(check: _Check, place: int, way: complex) -> list:
    """The tangents of the outputs, for each entry of an input."""
    shape = leaf_of(check.inputs[place]).shape
    units = way * np.eye(int(np.prod(shape)))
    return [forward_slopes(check.f, check.inputs, place, u.reshape(shape)) for u in units]


def _compare(check: _Check, place: int, k: int, seed: complex, what: str, got: np.ndarray,
             expected: np.ndarray) -> None:
    """Raise if an entry of ``got``, a row an entry of output ``k``, is not the expected one."""
    error = np.abs(got - expected)
    limit = check.options.atol + check.options.rtol * np.abs(expected)
    if (error <= limit).all():
        return
    wrong = np.where(error <= limit, -1.0, np.where(np.isnan(error), np.inf, error))
    row, column = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    y, x = check.ys[k], check.inputs[place]
    shape = leaf_of(x)._array.shape
    places = _entry(row, y._array.shape), _entry(column, shape)
    part = ("" if not y.is_complex() else "While considering the "
            f"{'real' if seed == 1 else 'imaginary'} part of complex outputs only, ")
    raise GradcheckError(
        f"{part}{what} mismatch for output {k} with respect to input {place},\n"
        f"numerical:{from_array(expected.T)}\nanalytical:{from_array(got.T)}\n"
        f"{int((wrong >= 0).sum())} of {wrong.size} entries differ, most in entry {places[0]} of "
        f"the output, entry {places[1]} of the {'values of the ' * isinstance(x, SparseTensor)}"
        f"input: numerical:{expected[row, column]:.10g}, analytical:{got[row, column]:.10g}"
    )


def _entry(flat: Any, shape: tuple) -> str:
    return str([int(i) for i in np.unravel_index(int(flat), shape)]) if shape else "[]"


def _compare_projections(check: _Check, at: int) -> None:
    """One random direction of an input against one random weighing of each output."""
    place, leaf = check.places[at], check.leaves[at]
    rng = np.random.default_rng(place)
    u = _direction(rng, leaf)
    slopes = numerical_slope(check.call, leaf, u, check.options.eps)
    tangents: list = []
    for k, (y, slope) in enumerate(zip(check.ys, slopes, strict=True)):
        v = _direction(rng, y)
        terms = np.real(np.conj(v) * slope)
        expected, got = float(terms.sum()), [] if k in check.outputs else [0.0]
        if k in check.outputs and check.options.backward:
            grads = vjp(y, check.leaves, v)
            _check_form(check, grads)
            g = grads[at]
            got.append(0.0 if g is None else float(np.real(np.conj(g._array) * u).sum()))
        if k in check.outputs and check.options.forward:
            tangents = tangents or forward_slopes(check.f, check.inputs, place, u)
            got.append(float(np.real(np.conj(v) * tangents[k]).sum()))
        # each entry of the Jacobian may be off by atol + rtol * |entry|
        limit = check.options.atol * np.abs(u).sum() * np.abs(v).sum()
        limit += check.options.rtol * np.abs(terms).sum()
        if all(abs(g - expected) <= limit for g in got):
            continue
        _compare_entries(check, at)
        raise GradcheckError(
            f"Jacobian mismatch for output {k} with respect to input {place} in fast mode: along "
            f"a random direction numerical:{expected:.10g}, analytical:{got[-1]:.10g}, although no "
            "single entry differs"
        )


def _direction(rng: np.random.Generator, t: Tensor) -> np.ndarray:
    u = rng.standard_normal(t.shape)
    u = u + 1j * rng.standard_normal(t.shape) if t.is_complex() else u
    return np.asarray(u / max(float(np.linalg.norm(u)), 1e-300))


# ---- what else a backward must do


def _check_form(check: _Check, found: Sequence[Tensor | None]) -> None:
    for place, t, g in zip(check.places, check.leaves, found, strict=True):
        if g is None:
            continue
        if g.shape != t.shape:
            raise GradcheckError(
                f"Analytical gradient has incorrect size: that of input {place} is of "
                f"{list(g.shape)}, not {list(t.shape)}"
            )
        if check.options.dtypes and g.dtype is not t.dtype:
            raise GradcheckError(
                f"Gradient has dtype mismatch: that of input {place} is {g.dtype}, not {t.dtype}"
            )


def _check_repeats(check: _Check, k: int) -> None:
    """A second backward gives what the first gave."""
    y = check.ys[k]
    v = _direction(np.random.default_rng(k), y)
    first, second = vjp(y, check.leaves, v), vjp(y, check.leaves, v)
    for place, a, b in zip(check.places, first, second, strict=True):
        if (a is None) != (b is None) or (
            a is not None and b is not None
            and not _same(a._array, b._array, check.options.nondet_tol)
        ):
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                f"multiple times gives different values: two walks from output {k} give input "
                f"{place} values that differ by more than nondet_tol={check.options.nondet_tol}"
            )


def _check_seeds(check: _Check, k: int) -> None:
    """Zeros give zeros; an output without a gradient counts as one with zeros."""
    y = check.ys[k]
    try:
        zeros = vjp(y, check.leaves, np.zeros(y.shape))
    except FAILURES as failure:
        raise GradcheckError(
            f"The backward of output {k} failed for an output gradient of zeros: {failure}"
        ) from failure
    for place, g in zip(check.places, zeros, strict=True):
        if g is not None and (g._array != 0).any():
            raise GradcheckError(
                f"backward not multiplied by grad_output: where that of output {k} is zeros, the "
                f"gradient of input {place} is not"
            )
    if not check.options.undefined or len(check.outputs) == 1:
        return
    v = _direction(np.random.default_rng(k), y)
    full = [
        from_array(np.array(v if j == k else np.zeros(check.ys[j].shape), check.ys[j]._array.dtype))
        for j in check.outputs
    ]
    outputs = [check.ys[j] for j in check.outputs]
    try:
        alone = vjp(y, check.leaves, v)
        among = grad(outputs, check.leaves, full, retain_graph=True, allow_unused=True)
    except FAILURES as failure:
        raise GradcheckError(
            f"{_UNDEFINED} It fails where only output {k} has a gradient and the others are "
            f"undefined: {failure}"
        ) from failure
    for place, a, b in zip(check.places, alone, among, strict=True):
        left = np.zeros(1) if a is None else a._array
        right = np.zeros(1) if b is None else b._array
        if not np.allclose(left, right, rtol=1e-12, atol=1e-12, equal_nan=True):
            raise GradcheckError(
                f"{_UNDEFINED} An undefined gradient is not treated as zeros: input {place} has "
                f"another gradient where only output {k} has one"
            )


def _check_undefined(check: _Check) -> None:
    """Without any output gradient there is no gradient, or zeros."""
    outputs = [check.ys[k] for k in check.outputs]
    if not outputs:
        return
    try:
        cts = from_undefined(outputs, check.leaves)
    except FAILURES as failure:
        warnings.warn(
            "Backwards compatibility: New undefined gradient support checking feature is enabled "
            "by default; check_undefined_grad=False switches it off.", UserWarning, stacklevel=5)
        raise GradcheckError(
            f"{_UNDEFINED} It fails where those of all outputs are undefined: {failure}"
        ) from failure
    for place, ct in zip(check.places, cts, strict=True):
        if ct is not None and (np.asarray(ct) != 0).any():
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are "
                f"undefined or zero: that of input {place} is neither"
            )


def _check_batched(check: _Check, k: int) -> None:
    """A batch of output gradients, carried back at once."""
    y = check.ys[k]
    rng = np.random.default_rng(k)
    seeds = np.stack([np.array(_direction(rng, y), y._array.dtype) for _ in range(3)])
    try:
        each, together = batched(y, check.leaves, seeds)
    except FAILURES as failure:
        raise GradcheckError(
            f"{_BATCHED} Those of output {k} fail: {failure}. A backward that reads the numbers of "
            "its gradient cannot be batched; pass check_batched_grad=False."
        ) from failure
    for a, b in zip(each, together, strict=True):
        if not np.allclose(a, b, rtol=check.options.rtol, atol=check.options.atol, equal_nan=True):
            raise GradcheckError(
                f"{_BATCHED} Those of output {k} are wrong: one after the other gives others."
            )


# ---- second derivatives


def gradgradcheck(func: Callable, inputs: Any, grad_outputs: Any = None, eps: float = 1e-6,
                  atol: float = 1e-5, rtol: float = 1e-3,
                  gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
                  nondet_tol: float = 0.0, check_undefined_grad: bool = True,
                  check_grad_dtypes: bool = False, check_batched_grad: bool = False,
                  check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
                  fast_mode: bool = False, masked: bool = False) -> bool:
    """``gradcheck`` of the gradients of ``func``, in its inputs and in the output gradients.

    ``grad_outputs`` are random where they are left out, with
    ``gen_non_contig_grad_outputs`` on memory with gaps. The rest is as in ``gradcheck``.

    >>> from functrans import torch
    >>> x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    >>> torch.autograd.gradgradcheck(lambda x: x ** 3, x)
    True
    """
    args = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    if grad_outputs is None:
        outputs = [y for y in outputs_of(func(*args)) if isinstance(y, Tensor) and y.requires_grad]
        seeds = tuple([_seed(k, y, gen_non_contig_grad_outputs) for k, y in enumerate(outputs)])
    else:
        seeds = as_tuple(grad_outputs)
    wanted = [i for i, x in enumerate(args)
              if isinstance(x, Tensor | SparseTensor) and x.requires_grad]

    def gradients(*both: Any) -> tuple:
        xs, vs = both[: len(args)], both[len(args):]
        ys = [y for y in outputs_of(func(*xs)) if y.requires_grad]
        leaves = [leaf_of(xs[i]) for i in wanted]
        grads = grad(ys, leaves, vs, create_graph=True, allow_unused=True)
        return tuple([g for g in grads if g is not None])

    gradients.__name__ = f"the gradient of {name_of(func)}"
    return gradcheck(
        gradients, args + seeds, eps, atol, rtol, raise_exception, masked, nondet_tol,
        check_undefined_grad and check_rev_over_rev, check_grad_dtypes, check_batched_grad,
        check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev,
        fast_mode=fast_mode, masked=masked,
    )


def _seed(k: int, y: Tensor, gaps: bool) -> Tensor:
    rng = np.random.default_rng(k)
    shape = (*y.shape, 2) if gaps and y.ndim else y.shape
    v: Any = rng.uniform(-1, 1, shape)
    if y.is_complex():
        v = v + 1j * rng.uniform(-1, 1, shape)
    v = np.asarray(v).astype(y._array.dtype)
    return from_array(v[..., 0] if gaps and y.ndim else v).requires_grad_()


__all__ = [
    "GradcheckError", "get_analytical_jacobian", "get_numerical_jacobian", "gradcheck",
    "gradgradcheck",
]
