"""Derivatives of functions of several arguments, under autograd's names."""

from __future__ import annotations

import inspect
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import aval_of
from functrans._transforms.reverse.checkpoint import checkpoint as _checkpoint
from functrans.autograd import core
from functrans.autograd import numpy as anp
from functrans.autograd._names import missing
from functrans.autograd._runs import Run, as_plain_tree, is_traced_in
from functrans.autograd.core import vspace
from functrans.autograd.wrap_util import unary_to_nary, wraps

make_vjp = unary_to_nary(core.make_vjp)
make_jvp = unary_to_nary(core.make_jvp)

_ONES = {np.dtype(np.float64): np.float64(1.0), np.dtype(np.float32): np.float32(1.0)}


def _seed_of_scalar(run: Run) -> Any:
    """The cotangent of one number, or of an array of one; autograd's error for all else."""
    if len(run.outs) == 1:
        shape, dtype = aval_of(run.outs[0])
        if dtype.kind in "fiu" and all([n == 1 for n in shape]):
            one = _ONES.get(dtype) if shape == () else None
            return np.ones(shape, dtype) if one is None else one
    raise TypeError(
        "Grad only applies to real scalar-output functions. "
        "Try jacobian, elementwise_grad or holomorphic_grad."
    )


@unary_to_nary
def grad(fun, x):
    """
    Returns a function which computes the gradient of ``fun``, whose output is a real number.

    It takes the arguments of ``fun`` and returns the derivative with respect to those at the
    positions ``argnum``, nested as they are. Of complex arguments ``x = a + ib`` it is
    ``df/da - i df/db``.

    Raises TypeError where the output is no real scalar, or an argument is no float.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import grad
    >>> grad(lambda x, y: np.sum(x * y), argnum=1)(np.array([1.0, 2.0]), np.ones(2))
    array([1., 2.])
    """
    run = Run(fun, x, again=False)
    return run.pull(_as_output(run, _seed_of_scalar(run)), consume=True)


def _as_output(run: Run, seed: Any) -> Any:
    """A cotangent as the output nests: that of autograd is of one value."""
    return seed if run.out_nesting.kind is None else core.tree.unflatten(run.out_nesting, [seed])


@unary_to_nary
def value_and_grad(fun, x):
    """Returns a function that computes the value and the gradient, in one run.

    >>> from functrans.autograd import value_and_grad
    >>> [float(y) for y in value_and_grad(lambda x: x**2)(3.0)]
    [9.0, 6.0]
    """
    run = Run(fun, x, again=False)
    try:
        seed = _as_output(run, _seed_of_scalar(run))
    except TypeError:
        raise TypeError(
            "value_and_grad only applies to real scalar-output functions. "
            "Try jacobian, elementwise_grad or holomorphic_grad."
        ) from None
    value = run.value
    return value, run.pull(seed, consume=True)


@unary_to_nary
def grad_and_aux(fun, x):
    """Returns a function that computes the gradient of the first output, and the second output.

    >>> from functrans.autograd import grad_and_aux
    >>> float(grad_and_aux(lambda x: (x**2, x))(3.0)[0])
    6.0
    """
    aux: list = []

    def first(x: Any) -> Any:
        out, rest = fun(x)
        aux.append(rest)
        return out, rest

    run = Run(first, x, again=False)
    value = run.value
    g = vspace(value[0]).ones(), vspace(value[1]).zeros()
    return run.pull(g, consume=True), value[1]


@unary_to_nary
def elementwise_grad(fun, x):
    """
    Returns a function that computes the sums of the columns of the Jacobian.

    Of a function of single entries that is the derivative of each.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import elementwise_grad
    >>> elementwise_grad(np.sin)(np.zeros(2))
    array([1., 1.])
    """
    run = Run(fun, x, again=False)
    space = vspace(run.value)
    if space.iscomplex:
        raise TypeError("Elementwise_grad only applies to real-output functions.")
    return run.pull(space.ones(), consume=True)


@unary_to_nary
def deriv(fun, x):
    """Returns a function that computes the derivative by one number, of any output.

    >>> from functrans.autograd import deriv
    >>> float(deriv(lambda x: x**3)(2.0))
    12.0
    """
    return core.make_jvp(fun, x)(vspace(x).ones())[1]


@unary_to_nary
def jacobian(fun, x):
    """
    Returns a function that computes the Jacobian, of shape output's + argument's.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import jacobian
    >>> jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    run = Run(fun, x, again=True)
    if len(run.outs) != 1 or len(run.inputs) != 1 or run.nesting.kind is not None:
        raise TypeError("jacobian takes functions of one array or number that return one")
    space = vspace(run.outs[0])
    if space.iscomplex:
        raise TypeError("jacobian only applies to real-output functions: see holomorphic_grad")
    if space.shape == ():
        return run.pull(space.ones())
    rows = list(map(run.pull, space.standard_basis()))
    shape = space.shape + run.inputs[0].shape
    return anp.reshape(anp.stack(rows), shape) if rows else np.zeros(shape)


@unary_to_nary
def holomorphic_grad(fun, x):
    """Returns a function that computes the complex derivative of a holomorphic one."""
    if not vspace(x).iscomplex:
        warnings.warn("Input to holomorphic_grad is not complex", stacklevel=2)
    return grad(lambda x: anp.real(fun(x)))(x)


def grad_named(fun: Callable, argname: str) -> Callable:
    """The gradient with respect to the parameter of this name.

    >>> from functrans.autograd import grad_named
    >>> float(grad_named(lambda x, y: x * y**2, "y")(2.0, 3.0))
    12.0
    """
    return grad(fun, list(inspect.signature(fun).parameters).index(argname))


def multigrad_dict(fun: Callable) -> Callable:
    """The gradients with respect to all arguments, in a dict by the names of the parameters.

    >>> from functrans.autograd import multigrad_dict
    >>> {k: float(g) for k, g in multigrad_dict(lambda x, y: x * y)(2.0, 3.0).items()}
    {'x': 3.0, 'y': 2.0}
    """
    signature = inspect.signature(fun)

    def gradfun(*args: Any, **kwargs: Any) -> OrderedDict:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        names = list(bound.arguments)

        def of_dict(values: dict) -> Any:
            again = inspect.BoundArguments(signature, OrderedDict(values))
            return fun(*again.args, **again.kwargs)

        gradients = grad(of_dict)(dict(bound.arguments))
        return OrderedDict([(name, gradients[name]) for name in names])

    return gradfun


@unary_to_nary
def hessian(fun, x):
    """Returns a function that computes the Hessian.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import hessian
    >>> hessian(lambda x: np.sum(x**3))(np.array([1.0, 2.0]))
    array([[ 6.,  0.],
           [ 0., 12.]])
    """
    return jacobian(jacobian(fun))(x)


@unary_to_nary
def make_hvp(fun, x):
    """Returns a function of a point, which returns ``v -> H v`` and the gradient."""
    return core.make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Callable, argnum: int = 0) -> Callable:
    """The function ``(*args, v) -> H v``; ``v`` has the shape of the argument.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import hessian_vector_product
    >>> hessian_vector_product(lambda x: np.sum(x**3))(np.array([1.0, 2.0]), np.ones(2))
    array([ 6., 12.])
    """
    gradient = grad(fun, argnum)

    def along(*args: Any, **kwargs: Any) -> Any:
        v = args[-1]
        return anp.tensordot(gradient(*args[:-1], **kwargs), v, anp.ndim(v))

    return grad(along, argnum)


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Callable, argnum: int = 0) -> Callable:
    """The function ``(*args, v) -> v^T J``, summed over the axes of ``v``."""

    def along(*args: Any, **kwargs: Any) -> Any:
        v = args[-1]
        return anp.tensordot(v, fun(*args[:-1], **kwargs), axes=anp.ndim(v))

    return jacobian(along, argnum)


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun, x):
    """Returns a function of a point, which returns ``v -> J v``, by two reverse runs."""
    vjp, y = core.make_vjp(fun, x)
    return core.make_vjp(vjp, vspace(y).zeros())[0]


def _half_squares(x: Any) -> Any:
    return 0.5 * anp.sum(x**2, axis=-1)


def make_ggnvp(f: Callable, g: Callable = _half_squares, f_argnum: int = 0) -> Callable:
    """The function of a point that returns ``v -> J^T H J v``: J of ``f``, H the Hessian of ``g``.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import make_ggnvp
    >>> make_ggnvp(lambda x: x**2)(np.array([1.0, 2.0]))(np.ones(2))
    array([ 4., 16.])
    """

    @unary_to_nary
    def make(f: Callable, x: Any) -> Callable:
        f_vjp, y = core.make_vjp(f, x)
        g_hvp, _ = core.make_vjp(grad(g), y)
        f_jvp, _ = core.make_vjp(f_vjp, vspace(y).zeros())
        return lambda v: f_vjp(g_hvp(f_jvp(v)))

    return make(f, f_argnum)


def checkpoint(fun: Callable) -> Callable:
    """``fun``, whose intermediate values are computed again in the backward pass, not kept."""
    again = _checkpoint(fun)

    @wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if is_traced_in([args, kwargs]):
            return again(*args, **kwargs)
        return as_plain_tree(fun(*args, **kwargs))

    return wrapped


__all__ = [
    "checkpoint", "deriv", "elementwise_grad", "grad", "grad_and_aux", "grad_named", "hessian",
    "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "jacobian",
    "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode", "make_vjp", "multigrad_dict",
    "tensor_jacobian_product", "value_and_grad", "vector_jacobian_product",
]
__getattr__ = missing(__name__)
