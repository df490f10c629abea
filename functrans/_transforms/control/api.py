"""Control flow as functions: conditions and loops under every transform.

Where the predicate is one value these are Python's own ``if``, ``while`` and ``for``, and the
transforms record what is run. Under ``vmap`` a predicate may have a value for each entry of the
batch: all branches run and each entry keeps its own; a loop runs until every entry has finished.
Under ``jit`` what depends on the arguments becomes one equation of the program, which holds the
programs of the functions (``flow.py``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import PYTHON_SCALARS, as_number, aval_of, dtype_of, plain, shape_of
from functrans._core.bind import Tracer, layers
from functrans._transforms.arguments import describe, is_number, is_value, require_callable
from functrans._transforms.control import flow
from functrans._transforms.control.carry import Carry, handed_out, staged_scan
from functrans._transforms.control.revolve import Revolve, until_none
from functrans._transforms.derived import surfacing
from functrans._transforms.options import require_count
from functrans._transforms.staging.staging import StagedTracer
from functrans._transforms.vmap import BatchTracer
from functrans.errors import (
    ArgumentError,
    ConcretizationError,
    ShapeError,
    UnsupportedError,
    name_of,
)


@surfacing
def cond(pred: Any, true_fn: Callable, false_fn: Callable, *operands: Any) -> Any:
    """``true_fn(*operands)`` where ``pred`` holds, else ``false_fn(*operands)``.

    ``(p, x) -> f1(x) if p else f0(x)``

    Only the branch that is taken runs, and is differentiated. Under ``vmap``, with predicates that
    differ within the batch, both run on the whole batch and each entry keeps its own result; they
    must then return the same structure, shapes and dtypes. So they must under ``jit`` with a
    predicate that depends on the arguments; what is made of ``operands`` alone, not of what the
    functions close over, is then computed in the branch that is taken.

    Raises ShapeError where ``pred`` is not a scalar or the branches disagree.

    >>> import functrans as ft, numpy as np
    >>> from functrans import cond
    >>> f = lambda x: cond(x > 1, lambda x: 1 + 2 * (x - 1), lambda x: x**2, x)
    >>> ft.grad(f)(3.0), ft.grad(f)(0.25)
    (Array(2.), Array(0.5))
    >>> ft.vmap(ft.grad(f))(np.array([3.0, 0.25]))
    Array([2. , 0.5])
    """
    true_fn = require_callable("cond", true_fn)
    false_fn = require_callable("cond", false_fn)
    pred = _predicate("cond", pred)
    if pred.staged:
        return _branch(pred.value, (false_fn, true_fn), operands, "cond")
    if not pred.varies:
        return handed_out(true_fn(*operands) if pred.any else false_fn(*operands))
    names = name_of(true_fn), name_of(false_fn)
    outs = [true_fn(*operands), false_fn(*operands)]
    return handed_out(_selected("cond", pred.value, outs, names))


@surfacing
def switch(index: Any, branches: Sequence[Callable], *operands: Any) -> Any:
    """``branches[index](*operands)``, an index out of range taken as the nearest in it.

    ``(i, x) -> f[min(max(i, 0), n - 1)](x)``

    Under ``vmap`` and ``jit`` as ``cond``.

    Raises ArgumentError where ``index`` is not an integer or there are no branches.

    >>> import functrans as ft, numpy as np
    >>> from functrans import switch
    >>> ft.grad(lambda x: switch(2, [np.sin, np.cos, np.exp], x))(0.0)
    Array(1.)
    """
    if not isinstance(branches, Iterable):
        raise ArgumentError(f"switch: branches must be functions, but is {describe(branches)}")
    branches = list(branches)
    if not branches:
        raise ArgumentError("switch needs at least one branch")
    for f in branches:
        f = require_callable("switch", f)
    index = as_number(index)
    if not is_number(index) or dtype_of(index).kind not in "iu":
        raise ArgumentError(f"switch: the index must be an integer, but is {describe(index)}")
    _require_scalar("switch", "index", index)
    inner, batched = _innermost(index)
    if isinstance(inner, StagedTracer) and not batched:
        return _branch(index, branches, operands, "switch")
    if not batched:
        i = operator.index(inner)
        return handed_out(branches[min(max(i, 0), len(branches) - 1)](*operands))
    if not isinstance(inner, Tracer):
        wanted = np.unique(np.clip(inner, 0, len(branches) - 1)).tolist()
    else:
        wanted = list(range(len(branches)))
    names = [name_of(branches[i]) for i in wanted]
    out = branches[wanted[-1]](*operands)
    for k in reversed(range(len(wanted) - 1)):
        pair = [branches[wanted[k]](*operands), out]
        out = _selected("switch", index <= wanted[k], pair, (names[k], names[k + 1]))
    return handed_out(out)


@surfacing
def while_loop(
    cond_fn: Callable,
    body_fn: Callable,
    init: Any,
    *,
    max_steps: int | None = None,
    checkpoint: str | Revolve | None = None,
) -> Any:
    """``x = body_fn(x)`` for as long as ``cond_fn(x)`` holds, from ``x = init``.

    ``x[0] -> x[n]`` with ``x[k + 1] = b(x[k])``, n the least k where ``c(x[k])`` is false.

    ``init`` may be a container; its structure, shapes and dtypes must not change. A Python scalar
    in it takes the dtype that the first step gives it. Derivatives of either mode are those of the
    steps that were run; reverse mode stores what each step needs. ``max_steps`` ends the loop after
    so many steps; under ``jit`` reverse mode needs it, to know how much there is to store.

    With ``checkpoint="revolve"`` (or ``Revolve(...)``) reverse mode keeps few states, although the
    number of steps n is not known before: those of ``Revolve`` and at most log2(n) more; it runs no
    step more than once more again than ``scan`` would one of 8 + n. Not under ``jit``.

    Under ``vmap``, where entries of the batch need different numbers of steps, the body runs on
    all of them until the last has finished, and what it does to finished ones is dropped.

    Raises ArgumentError or ShapeError where the body changes the structure or a type,
    UnsupportedError for ``checkpoint`` under ``jit``.

    >>> import functrans as ft, numpy as np
    >>> from functrans import while_loop
    >>> double = lambda x: while_loop(lambda x: x < 10, lambda x: 2 * x, x)
    >>> ft.vmap(ft.value_and_grad(double))(np.array([1.0, 3.0, 20.0]))
    (Array([16., 12., 20.]), Array([16.,  4.,  1.]))
    """
    cond_fn = require_callable("while_loop", cond_fn)
    body_fn = require_callable("while_loop", body_fn)
    if max_steps is not None:
        max_steps = require_count("while_loop", "max_steps", max_steps, 0, "None or ")
    x = handed_out(init)
    carry = Carry("while_loop", body_fn)
    steps, reaches = 0, flow.reaches_staged(cond_fn, body_fn)
    if checkpoint is not None:
        _require_unstaged(reaches or flow.any_staged(x))
        return _revolved_while(cond_fn, carry, x, max_steps, checkpoint)
    while max_steps is None or steps < max_steps:
        left = None if max_steps is None else max_steps - steps
        if flow.any_staged(x):
            return _staged_while(cond_fn, carry, x, left)
        if reaches and not steps and (y := _closing_while(cond_fn, carry, x, left)) is not None:
            return y
        steps += 1
        going = _predicate("while_loop", cond_fn(x), loop=True)
        if going.staged:  # cond_fn closes over a staged value
            return _staged_while(cond_fn, carry, x, left)
        if not going.any:
            return handed_out(x)
        x = _next(carry, going, x)
    return handed_out(x)


def _next(carry: Carry, going: _Predicate, x: Any) -> Any:
    """The next state; of a batch, for the entries that are going on."""
    new = carry.checked(x, carry.f(x))
    if not going.varies:
        return new
    return _selected("while_loop", going.value, [new, x], (name_of(carry.f), "its carry"))


def _revolved_while(
    cond_fn: Callable, carry: Carry, init: Any, most: int | None, options: str | Revolve
) -> Any:
    if options != "revolve" and not isinstance(options, Revolve):
        raise ArgumentError(
            f'while_loop: checkpoint must be "revolve" or a Revolve(...), but is {options!r}'
        )

    def step(x: Any) -> Any:
        going = _predicate("while_loop", cond_fn(x), loop=True)
        _require_unstaged(going.staged)
        return _next(carry, going, x) if going.any else None

    chosen = options if isinstance(options, Revolve) else Revolve()
    name = f"while_loop of {name_of(carry.f)}"
    return handed_out(until_none(name, step, init, chosen, most))


def _require_unstaged(staged_values: bool) -> None:
    if staged_values:
        raise UnsupportedError(
            "while_loop: checkpoint does not go with jit. Take the derivative outside of jit, of a "
            "loop with a jitted body, or use scan(..., checkpoint=...), whose length is known."
        )


@surfacing
def fori_loop(lower: Any, upper: Any, body_fn: Callable, init: Any) -> Any:
    """``x = body_fn(i, x)`` for ``i`` from ``lower`` up to but not including ``upper``.

    ``x[i + 1] = b(i, x[i])`` for i = l, ..., u - 1.

    The carry is as in ``while_loop``. ``i`` is a Python int, but under ``vmap``, with bounds that
    differ within the batch, a value for each entry, and under ``jit`` a traced one. Bounds that
    depend on the arguments of ``jit`` make it a ``while_loop``, which has no reverse mode there.

    >>> import functrans as ft, numpy as np
    >>> from functrans import fori_loop
    >>> ft.grad(lambda x: fori_loop(0, 3, lambda i, y: y * x, 1.0))(2.0)
    Array(12.)
    """
    body_fn = require_callable("fori_loop", body_fn)
    bounds = [_innermost(_bind(n)) for n in (lower, upper)]
    if any(batched or isinstance(n, StagedTracer) for n, batched in bounds):
        _, x = while_loop(
            lambda state: state[0] < upper,
            lambda state: (state[0] + 1, body_fn(state[0], state[1])),
            (lower, init),
        )
        return x
    steps = range(*[operator.index(n) for n, _ in bounds])
    x = handed_out(init)
    carry = Carry("fori_loop", body_fn)

    def step(state: Any, _: Any) -> tuple:
        i, x = state
        return (i + 1, carry.checked(x, body_fn(i, x))), None

    for k, i in enumerate(steps):
        begins = not k and (flow.any_staged(x) or flow.reaches_staged(body_fn))
        new = None if begins else carry.checked(x, body_fn(i, x))
        if begins or (not k and flow.any_staged(new)):
            outputs = staged_scan(step, (i, x), None, len(steps), False, "fori_loop")
            if outputs is not None:
                return handed_out(outputs[0][1])
            new = carry.checked(x, body_fn(i, x)) if new is None else new
        x = new
    return handed_out(x)


# ---- predicates


class _Predicate(NamedTuple):
    """A predicate. ``any``: its value, if all entries agree; ``varies``: they do not."""

    value: Any
    any: bool
    varies: bool
    staged: bool = False


def _predicate(who: str, pred: Any, loop: bool = False) -> _Predicate:
    pred = _test(who, pred)
    inner, batched = _innermost(pred)
    if isinstance(inner, StagedTracer) and (loop or not batched):
        return _Predicate(pred, True, False, True)
    if not batched:
        return _Predicate(pred, bool(inner), False)
    if isinstance(inner, Tracer) and not loop:  # staged: an entry may take either branch
        return _Predicate(pred, True, True)
    anywhere = bool(np.any(inner))
    return _Predicate(pred, anywhere, anywhere and not np.all(inner))


def _test(who: str, pred: Any) -> Any:
    """``pred`` as a scalar."""
    pred = as_number(pred)
    if not is_value(pred):
        raise ArgumentError(f"{who}: the predicate must be a boolean, but is {describe(pred)}")
    _require_scalar(who, "predicate", pred)
    return pred


def _require_scalar(who: str, what: str, x: Any) -> None:
    if shape_of(x):
        raise ShapeError(
            f"{who}: the {what} has shape {shape_of(x)}, but must be a scalar. Use np.where to "
            "choose entry by entry, or reduce it, for example with .any() or .all()."
        )


def _innermost(x: Any) -> tuple[Any, bool]:
    """The value that no derivative or batch is around, and whether there was a batch."""
    *around, value = layers(x)
    return value, any(isinstance(v, BatchTracer) for v in around)


def _bind(n):
    n = as_number(n)
    if not is_number(n) or dtype_of(n).kind not in "iu":
        raise ArgumentError(f"fori_loop: the bounds must be integers, but got {describe(n)}")
    _require_scalar("fori_loop", "bound", n)
    return n


# ---- staged


def _branch(index: Any, functions: Sequence[Callable], operands: tuple, name: str) -> Any:
    """What the function that ``index`` chooses returns, all of them staged."""
    outs, structure = flow.branch(index, functions, operands, name)
    return handed_out(tree.unflatten(structure, outs))


def _closing_while(test: Callable, carry: Carry, init: Any, most: int | None) -> Any:
    """A loop over a state of Python's own, if its functions close over values of the program."""
    if not all(map(is_value, tree.leaves(init))):
        return None
    try:
        return _staged_while(test, carry, init, most)
    except ConcretizationError:
        return None  # as long as the state is known, Python may decide by it


def _staged_while(test: Callable, carry: Carry, init: Any, most: int | None) -> Any:
    state, shape = tree.flatten(init)

    def going(values: Sequence) -> Any:
        return _test(carry.who, test(tree.unflatten(shape, values)))

    def flat(values: Sequence, _: Sequence) -> tuple[list, list]:
        old = tree.unflatten(shape, values)
        return tree.leaves(carry.checked(old, carry.f(old))), []

    final = flow.while_loop(going, flat, state, most, carry.who)
    return None if final is None else handed_out(tree.unflatten(shape, final))


# ---- what branches and steps return


def _selected(who: str, pred: Any, outs: Sequence, names: Sequence[str]) -> Any:
    """``outs[0]`` where ``pred`` holds, else ``outs[1]``, leaf by leaf."""
    (xs, structure), (ys, other) = map(tree.flatten, outs)
    if structure != other:
        raise ArgumentError(
            f"{who}: `{names[0]}` returned the structure {structure!r} and `{names[1]}` {other!r}. "
            "They must agree where the predicate differs within a batch."
        )
    chosen = [_select(who, pred, x, y, names) for x, y in zip(xs, ys, strict=True)]
    return tree.unflatten(structure, chosen)


def _select(who, pred, x, y, names):
    if x is y:
        return x
    if not (is_value(x) and is_value(y)):
        raise ArgumentError(
            f"{who}: `{names[0]}` returned {describe(x)} and `{names[1]}` {describe(y)}. "
            "Under vmap one of two can be chosen for each entry only where both are numbers."
        )
    weak = type(x) in PYTHON_SCALARS or type(y) in PYTHON_SCALARS
    if shape_of(x) != shape_of(y) or (not weak and dtype_of(x) != dtype_of(y)):
        raise ShapeError(
            f"{who}: `{names[0]}` returned {aval_of(x)!r} and `{names[1]}` {aval_of(y)!r}. Shapes "
            "and dtypes must agree where the predicate differs within a batch."
        )
    return np.where(pred, plain(x), plain(y))
