"""How NumPy code becomes the shim's functions: ``op`` and the elementwise table.

A function is written as NumPy code on arrays:

    @op
    def mean(x, dim=None, keepdim=False, *, dtype=None): return np.mean(x, axis=dim, ...)

Called with tensors of which one requires gradients, the body runs on ``graph.Value``s, which
record; otherwise on the arrays. Results come out as tensors, the last node as ``MeanBackward0``.

    op(body)   a function of tensors; ``f.body`` is the NumPy code, to be used in other bodies
    METHODS    name -> function, for those that are also methods of tensors; PROPERTIES likewise
    FUNCTIONS, LINALG, FFT, SPECIAL, NN  name -> function, for those of one module alone: ``space=``

``rows`` has a shorter way for functions of one elementwise row, ``inplace`` the variants that write
to their first argument, ``outputs`` what ``out=`` means.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans.errors import FunctransError
from functrans.extend import TABLE, AnyArray, Tracer
from functrans.torch._functions.accepted import BOOLEAN_NEGATION, acceptance
from functrans.torch._functions.failures import not_a_tensor, raise_as_torch
from functrans.torch._functions.kept import keeping, mark, mark_row
from functrans.torch._functions.outputs import (
    ByRow,
    RowCall,
    any_requires,
    computes_wide,
    in_single,
    in_torchs_type,
    narrow,
    parameters_of,
    positions_of,
    record_row,
    rename,
    renaming,
    return_type,
    taking_out,
    widen,
    write_out,
    wrong_arguments,
)
from functrans.torch._graph.graph import RowNode, Value, is_outer
from functrans.torch._graph.modes import quietly, state
from functrans.torch._graph.nodes import Node, named, title_for
from functrans.torch._graph.observed import observe
from functrans.torch._graph.overriding import Overridden, overridable, published
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import NUMBERS
from functrans.torch._tensors.tensor import Tensor, as_memory, from_array, lift_operand

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
# Any: what ``op`` returns has a ``body``, other functions have not
METHODS: dict[str, Any] = {}
FUNCTIONS: dict[str, Any] = {}
LINALG: dict[str, Any] = {}
FFT: dict[str, Any] = {}
SPECIAL: dict[str, Any] = {}
NN: dict[str, Any] = {}
PROPERTIES: dict[str, Callable] = {}
# names of METHODS whose functions, but not methods, take ``out=``; those of ``op`` do anyway
TAKING_OUT: set[str] = set()


def op(f: Callable | None = None, name: str = "", doc: str = "", *, title: str | None = None,
       method: bool = True, space: dict[str, Callable] | None = None, names: str = "",
       by_row: ByRow | None = None) -> Any:
    """``f``, NumPy code, as a function of tensors called ``name``; ``names``: others of it.

    It is a method too, unless ``method`` is False or ``space`` says whose function it is.
    ``by_row`` says which calls are one row; see ``direct``.
    """
    if f is None:
        return functools.partial(op, title=title, method=method, space=space, name=name,
                                 names=names, by_row=by_row)
    body = f
    if doc:  # an expression
        named(body, name, doc)
    name = name or body.__name__.strip("_")
    shown = title or title_for(name)
    returned = f"{'linalg_' if space is LINALG else ''}{name.removesuffix('_dim')}"
    wanted, order = parameters_of(body), positions_of(body)
    accepted, saved = acceptance(name), keeping(name)
    wide = computes_wide(name)
    keeps_result = saved is not None and saved[1]
    if by_row is not None:
        named(by_row, name, None)  # of whose arguments its errors speak

    @functools.wraps(body)
    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = rename(kwargs, wanted)
            out = kwargs.pop("out", None)
            if out is not None:
                return write_out(name, functools.partial(run, *args, **kwargs), out,
                                 (args, kwargs))
            args = _in_place_of_names(args, kwargs, order)
        if by_row is not None:
            y = _directly(shown, by_row, args, kwargs)
            if y is not None:  # which marks its operands itself
                return mark_row(y, y) if keeps_result and state.grad else y
        common = False  # of the types that every function takes, as they are
        if args and type(args[0]) is Tensor:
            d = args[0]._array.dtype
            common = d is _F32 or d is _F64
        if accepted is not None and not (common and accepted.first_only):
            accepted.check(args, kwargs.get("dtype"))
        if state.grad and (any_requires(args) or (kwargs and any_requires(kwargs.values()))):
            operands = [_lift(x) for x in args]
            options = {k: _lift(x) for k, x in kwargs.items()}
        else:
            operands = [_plain(x) for x in args]
            options = {k: _plain(x) for k, x in kwargs.items()}
        if accepted is not None and accepted.joint:
            operands = accepted.together(operands)
        half = None
        if wide and not common and options.get("dtype") is None:
            half = widen(name, operands, options)
            if half is not None:
                operands = [in_single(x) for x in operands]
                options = {k: in_single(x) for k, x in options.items()}
        try:
            out = quietly(body, *operands, **options)
        except (TypeError, ValueError, IndexError, AttributeError) as failure:
            return _fail(name, failure, operands, args, kwargs)
        out = out if half is None else narrow(out, half)
        y = wrap(in_torchs_type(name, out, operands, options), operands, shown, returned)
        if saved is not None and state.grad:
            mark(y, args, saved)
        return y

    called = observe(named(run, name, body.__doc__), name)
    called.body = body  # type: ignore[attr-defined]  # for other bodies
    if method or space is not None:
        table = METHODS if space is None else space
        table.update(dict.fromkeys([name, *names.split()], called))
    return called


def _fail(name: str, failure: Exception, operands: list, args: tuple,
            kwargs: dict[str, Any]) -> Any:
    """What a sparse tensor has in place of a body that failed; else torch's error."""
    if args and hasattr(args[0], "of_sparse"):
        return args[0].of_sparse(name, args[1:], kwargs)
    if isinstance(failure, TypeError):
        refuse(name, failure, operands)
        raise wrong_arguments(name, failure, args, kwargs) from failure
    if isinstance(failure, ValueError | IndexError):
        raise_as_torch(name, failure, operands)
    if args and not isinstance(args[0], Tensor):  # of which a body read what tensors have
        raise not_a_tensor(name, "input", 1, args[0]) from failure
    raise failure


def _directly(title: str, by_row: ByRow, args: tuple,
              kwargs: dict[str, Any]) -> Tensor | None:
    """The result by what ``by_row`` returns, its node with ``title``; None where that is None or
    refused."""
    try:
        call = by_row(*args, **kwargs)
        if isinstance(call, RowCall):
            return record_row(RowNode, title, call)
    except (ValueError, IndexError, TypeError):
        return None  # the general way says what is wrong
    if call is not None and call._node is not None:
        call._node.title = title
    return call


def function(f: Callable) -> Callable:
    """Enter ``f``, written for tensors, as a function of ``torch`` that is no method."""
    FUNCTIONS[f.__name__.strip("_")] = renaming(f)
    return f


def method(f: Callable) -> Callable:
    """Enter ``f``, written for tensors, as a function and a method."""
    METHODS[f.__name__.strip("_")] = renaming(f)
    return f


def _in_place_of_names(args: tuple, kwargs: dict[str, Any], order: Sequence[str]) -> tuple:
    """``args`` and the tensors behind them that ``kwargs`` gave by name, which are taken out."""
    moved = [*args]
    for name in order[len(args) :]:
        if not isinstance(kwargs.get(name), Tensor):
            break
        moved.append(kwargs.pop(name))
    return tuple(moved)


def refuse(name: str, failure: TypeError, xs: Any) -> None:
    """Raise if ``failure`` is NumPy's, which has no loop of ``name`` for operands of such types."""
    if isinstance(failure, FunctransError) or not _NO_LOOP.match(str(failure)):
        return
    kinds = [dtypes.BY_ARRAY_DTYPE[x.dtype].name for x in xs if hasattr(x, "dtype")]
    name = name.strip("_")
    if kinds == ["bool"] and name == "neg":
        raise NotImplementedError(BOOLEAN_NEGATION) from failure
    raise NotImplementedError(
        f"{name} is not implemented for {' and '.join(dict.fromkeys(kinds))}; convert "
        "the operands to another type first"
    ) from failure


_NO_LOOP = re.compile("ufunc '|The numpy boolean|numpy boolean|Cannot cast ufunc")


def _lift(x: Any) -> Any:
    if isinstance(x, Tensor):
        return lift_operand(x)
    if type(x) in (list, tuple):
        return type(x)([_lift(v) for v in x])
    if type(x) is np.ndarray:
        return x.copy()  # its owner may change it before the backward
    return _of_no_tensor(x)


def _plain(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x._array
    if type(x) in (list, tuple):
        return type(x)([_plain(v) for v in x])
    return _of_no_tensor(x)


def _of_no_tensor(x: Any) -> Any:
    """Another operand, or an option, as bodies take it."""
    kind = type(x)
    if kind in _AS_IT_IS:
        return x
    if kind in _CONVERSIONS:
        return _CONVERSIONS[kind](x)
    if hasattr(kind, "__torch_function__"):
        raise Overridden(f"{kind.__name__} has functions of its own")
    return x


_AS_IT_IS = frozenset({int, float, bool, complex, str, type(None), np.ndarray, slice})
_CONVERSIONS: dict[type, Callable] = {
    dtypes.dtype: operator.attrgetter("array_dtype"),
    **dict.fromkeys(np.sctypeDict.values(), dtypes.number),
}


def plain(x: Any) -> Any:
    """The array of an operand, without its place in the graph."""
    return as_memory(x.primal if type(x) is Value else x)


def wrap(out: Any, operands: Any, title: str, name: str) -> Any:
    """Results of NumPy code as tensors; none is on the memory of an argument.

    ``name``: of the type of named results.
    """
    if type(out) is Value and not is_outer(out):
        if out.node is not None and not any(_is_output(x, out.node) for x in operands):
            out.node.title = title
        array = _apart(out.primal, operands)
        storage = out.storage if array is out.primal else None  # a copy is on memory of its own
        return from_array(array, storage, out.node, out.index)
    if isinstance(out, np.ndarray | np.generic):
        return from_array(_apart(np.asarray(out), operands))
    if isinstance(out, Tracer):
        return from_array(out)
    if isinstance(out, tuple | list):
        items = [wrap(x, operands, title, name) for x in out]
        fields = getattr(out, "_fields", None)
        return type(out)(items) if fields is None else return_type(name, fields)(*items)
    return out


def _is_output(x: Any, node: Node) -> bool:
    if type(x) in (list, tuple):
        return any(_is_output(v, node) for v in x)
    return type(x) is Value and x.node is node


def _apart(array: Any, operands: Any) -> AnyArray:
    """``array``, copied if it is on the memory of an argument."""
    if type(array) is not np.ndarray:
        return array
    if not array.flags.writeable or any(_is_on(array, x) for x in operands):
        return array.copy()
    return array


def _is_on(array: np.ndarray, x: Any) -> bool:
    """Whether ``array`` is on the memory of an argument, or of one in a list."""
    if type(x) in (list, tuple):
        return any(_is_on(array, v) for v in x)
    x = x.primal if type(x) is Value else x
    return x is array or (array.base is not None and isinstance(x, np.ndarray)
                          and np.may_share_memory(x, array))


# ---- types


def ordered(who: str, *xs: Any) -> None:
    """Raise if some operand is complex: those have no order."""
    if any(type(x) is complex or (type(x) not in NUMBERS and x.dtype.kind == "c") for x in xs):
        raise NotImplementedError(f"{who} is not implemented for complex numbers, which have no "
                                  "order; take .abs() or .real first")


def floating(x: Any) -> Any:
    """``x``, where it is of integers or booleans, in the default floating-point type."""
    if type(x) in NUMBERS:
        return x
    return x if x.dtype.kind in "fcV" else x.astype(dtypes.default_float())


def promote(*xs: Any, floats: bool = False) -> list:
    """The operands in the type of the result. Python numbers stay as they are where they can."""
    target = dtypes.result_dtype([x for x in xs if x is not None])
    if floats and target.kind not in "fcV":
        target = dtypes.default_float()
    return [_in(x, target) for x in xs]


def _in(x, target):
    if x is None:
        return None
    if type(x) in NUMBERS:
        return target.type(x) if target.kind in "V" else _python_number(x, target)
    return x if x.dtype == target else x.astype(target)


def _python_number(x, target):
    """A number that NumPy does not widen ``target`` for; what is too large for integers wraps."""
    if target.kind in "fc":
        return float(x) if target.kind == "f" else complex(x)
    if target.kind == "b":
        return x
    limits = np.iinfo(target)
    return x if limits.min <= x <= limits.max else np.int64(x).astype(target)


def publish(name: str, f: Any) -> Callable:
    """``f`` as a function of a module: it takes ``out=`` where ``name`` does, and objects may
    override it."""
    shown = taking_out(f) if name in TAKING_OUT else f
    if not hasattr(getattr(f, "inner", shown), "overridable") and callable(shown):
        shown = overridable(shown)
        shown.__name__ = shown.__qualname__ = name
    for inner in (f, getattr(f, "inner", f)):
        if inner is not shown:
            published[inner] = shown
    return shown


def row(name: str) -> Any:
    """The row of the table, to be used in bodies."""
    return TABLE[name]
