"""Operators of functions of one argument as operators of functions of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.autograd.util import subvals


def get_name(f: Any) -> str:
    """The name of a function."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str | None:
    """The docstring of a function."""
    return getattr(f, "__doc__", "")


def wraps(fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: Any) -> Callable:
    """Decorator: a name and a docstring, made of those of ``fun``."""

    def decorate(f: Any) -> Any:
        name = get_name(fun)
        f.__name__ = name if namestr == "{fun}" else namestr.format(fun=name, **kwargs)
        doc = get_doc(fun)
        f.__doc__ = doc if docstr == "{doc}" else docstr.format(fun=name, doc=doc, **kwargs)
        return f

    return decorate


_DOC = """    {op} of function {fun} with respect to argument number {argnum}. Takes the
    same arguments as {fun} but returns the {op}.
    """


def unary_to_nary(unary_operator: Callable) -> Callable:
    """``operator(fun, x, ...)`` as ``operator(fun, argnum=0, ...)``, a function of all arguments.

    With several ``argnum`` the function of one argument takes a tuple.
    """

    @wraps(unary_operator)
    def nary_operator(fun: Callable, argnum: Any = 0, *op_args: Any, **op_kwargs: Any) -> Callable:
        if type(argnum) not in (int, tuple, list):
            raise AssertionError(argnum)
        several = type(argnum) is not int

        def nary_f(*args: Any, **kwargs: Any) -> Any:
            if several:
                x: Any = tuple([args[i] for i in argnum])
            elif argnum == 0 and len(args) == 1 and not kwargs:
                return unary_operator(fun, args[0], *op_args, **op_kwargs)
            else:
                x = args[argnum]

            def unary_f(x: Any) -> Any:
                places = zip(argnum, x, strict=True) if several else ((argnum, x),)
                return fun(*subvals(args, places), **kwargs)

            unary_f.__name__ = get_name(fun)
            return unary_operator(unary_f, x, *op_args, **op_kwargs)

        nary_f.__name__ = f"{nary_operator.__name__}_of_{get_name(fun)}_wrt_argnum_{argnum}"
        nary_f.__doc__ = _DOC.format(op=nary_operator.__name__, fun=get_name(fun), argnum=argnum)
        return nary_f

    return nary_operator
