"""Vector-Jacobian and Jacobian-vector products of functions of one argument, and vector spaces."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from functrans import tree
from functrans._core.array import aval_of
from functrans._core.bind import Tracer
from functrans.autograd._names import missing
from functrans.autograd._primitives import (
    JVPNode,
    SparseObject,
    VJPNode,
    add_all,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive_jvps,
    primitive_vjps,
)
from functrans.autograd._primitives import primitive as primitive_
from functrans.autograd._runs import Run, getval, push
from functrans.autograd.tracer import Box, Node, isbox, trace
from functrans.autograd.util import func, subval, toposort

sum_outgrads = add_all


def make_vjp(fun: Callable, x: Any) -> tuple[Callable[[Any], Any], Any]:
    """The pullback ``g -> g^T J`` of ``fun`` at ``x``, and the value.

    ``x`` is an array, a number or a list, tuple or dict of them; the pullback may be called again.

    >>> from functrans.autograd.core import make_vjp
    >>> vjp, value = make_vjp(lambda x: x * x, 3.0)
    >>> float(vjp(1.0)), float(value)
    (6.0, 9.0)
    """
    run = Run(fun, x, again=True)
    return run.pull, run.value


def make_jvp(fun: Callable, x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """The function ``v -> (fun(x), J v)``, which runs ``fun`` at each call.

    >>> from functrans.autograd.core import make_jvp
    >>> [float(y) for y in make_jvp(lambda x: x * x, 3.0)(2.0)]
    [9.0, 12.0]
    """
    return lambda v: push(fun, x, v)


# ---- Vector spaces


class VSpace:
    """The space of values with the shape, dtype and nesting of ``value``.

    A subclass registers the class of its values with ``register``; for a class that is to be traced
    there is ``functrans.tree.register``.
    """

    mappings: ClassVar[dict[type, Callable[[Any], VSpace]]] = {}
    iscomplex = False
    shape: Any

    def __init__(self, value: Any):
        pass

    @classmethod
    def register(cls, value_type: type, vspace_maker: Callable | None = None) -> None:
        """Values of this class are of this space, or of the one that ``vspace_maker`` makes."""
        VSpace.mappings[value_type] = vspace_maker or cls

    def add(self, x_prev: Any, x_new: Any) -> Any:
        """The sum of two values."""
        return self._add(x_prev, x_new)

    def mut_add(self, x_prev: Any, x_new: Any) -> Any:
        """The sum of two values; the first may be None, for zero, or be changed."""
        return self._mut_add(self.zeros() if x_prev is None else x_prev, x_new)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        """A value times a number."""
        return self._scalar_mul(x, a)

    def inner_prod(self, x: Any, y: Any) -> Any:
        """The real inner product."""
        return self._inner_prod(x, y)

    def covector(self, x: Any) -> Any:
        """The cotangent that pairs with tangents as ``x`` does in ``inner_prod``."""
        return self._covector(x)

    def zeros(self) -> Any:
        raise NotImplementedError(f"zeros of {self!r}")

    ones = standard_basis = randn = zeros

    def _add(self, x: Any, y: Any) -> Any:
        return x + y

    def _mut_add(self, x: Any, y: Any) -> Any:
        x += y
        return x

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return x * a

    def _inner_prod(self, x: Any, y: Any) -> Any:
        raise NotImplementedError(f"inner_prod of {self!r}")

    def _covector(self, x: Any) -> Any:
        return x

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as of autograd's, which compare by value

    def __repr__(self) -> str:
        return f"{type(self).__name__}_{vars(self)}"


class ArrayVSpace(VSpace):
    """Real arrays and numbers."""

    def __init__(self, value: Any):
        self.shape, self.dtype = aval_of(value)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def zeros(self) -> np.ndarray:
        return np.zeros(self.shape, self.dtype)

    def ones(self) -> np.ndarray:
        return np.ones(self.shape, self.dtype)

    def standard_basis(self) -> Iterator[np.ndarray]:
        for index in np.ndindex(*self.shape):
            e = self.zeros()
            e[index] = 1
            yield e

    def randn(self) -> np.ndarray:
        return np.array(np.random.randn(*self.shape)).astype(self.dtype)

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return np.dot(np.ravel(x), np.ravel(y))


class ComplexArrayVSpace(ArrayVSpace):
    """Complex arrays and numbers, as a real space of twice the dimension."""

    iscomplex = True

    @property
    def size(self) -> int:
        return 2 * int(np.prod(self.shape))

    def ones(self) -> np.ndarray:
        return np.full(self.shape, 1.0 + 1.0j, self.dtype)

    def standard_basis(self) -> Iterator[np.ndarray]:
        for e in ArrayVSpace.standard_basis(self):
            yield e
            yield e * 1j

    def randn(self) -> np.ndarray:
        return ArrayVSpace.randn(self) + 1j * ArrayVSpace.randn(self)

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return np.real(np.dot(np.conj(np.ravel(x)), np.ravel(y)))

    def _covector(self, x: Any) -> Any:
        return np.conj(x)


class ContainerVSpace(VSpace):
    """Lists, tuples, dicts and other containers; ``shape`` nests the spaces of the parts."""

    def __init__(self, value: Any):
        self.shape = tree.map(vspace, value)

    def _map(self, f: Callable, *xs: Any) -> Any:
        return tree.map(f, self.shape, *xs)

    def _values(self, x: Any) -> list:
        return tree.leaves(x)

    @property
    def size(self) -> int:
        return sum([vs.size for vs in self._values(self.shape)])

    def zeros(self) -> Any:
        return self._map(lambda vs: vs.zeros())

    def ones(self) -> Any:
        return self._map(lambda vs: vs.ones())

    def randn(self) -> Any:
        return self._map(lambda vs: vs.randn())

    def standard_basis(self) -> Iterator[Any]:
        spaces, nesting = tree.flatten(self.shape)
        for i, vs in enumerate(spaces):
            for e in vs.standard_basis():
                yield tree.unflatten(
                    nesting, [e if j == i else v.zeros() for j, v in enumerate(spaces)])

    def _add(self, x: Any, y: Any) -> Any:
        return self._map(lambda vs, a, b: vs._add(a, b), x, y)

    def _mut_add(self, x: Any, y: Any) -> Any:
        return self._map(lambda vs, a, b: vs._mut_add(a, b), x, y)

    def _scalar_mul(self, x: Any, a: Any) -> Any:
        return self._map(lambda vs, b: vs._scalar_mul(b, a), x)

    def _inner_prod(self, x: Any, y: Any) -> Any:
        return sum(self._values(self._map(lambda vs, a, b: vs._inner_prod(a, b), x, y)))

    def _covector(self, x: Any) -> Any:
        return self._map(lambda vs, a: vs._covector(a), x)


def vspace(value: Any) -> VSpace:
    """The vector space of a value, a traced one too.

    Raises TypeError for what is no number, array or container of them.
    """
    maker = VSpace.mappings.get(type(value))
    if maker is not None:
        return maker(value)
    if isinstance(value, Tracer | np.ndarray):
        return _of_array(value)
    if tree.opened(value) is not None and value is not None:
        return ContainerVSpace(value)
    raise TypeError(
        f"Can't find vector space for value {value} of type {type(value)}. "
        f"Valid types are {VSpace.mappings.keys()}"
    )


def _of_array(value: Any) -> VSpace:
    return (ComplexArrayVSpace if value.dtype.kind == "c" else ArrayVSpace)(value)


VSpace.register(np.ndarray, _of_array)
VSpace.register(SparseObject, lambda x: x.vs)
for _kind in (list, tuple, dict):
    ContainerVSpace.register(_kind)
for _kind in (float, np.longdouble, np.float64, np.float32, np.float16):
    ArrayVSpace.register(_kind)
for _kind in (complex, np.clongdouble, np.complex64, np.complex128):
    ComplexArrayVSpace.register(_kind)


# ---- ``autograd.primitive``, with the methods of releases before 1.2


def primitive_with_deprecation_warnings(f_raw: Callable) -> Callable:
    """``extend.primitive``, with deprecated methods ``defvjp``, ``defvjp_is_zero``, ``defgrad``."""
    f: Any = primitive_(f_raw)
    makers: dict[int, Callable | None] = {}

    def declare(method: str, argnum: int, maker: Callable | None) -> None:
        warnings.warn(f"{method} of a primitive is deprecated: use extend.defvjp", stacklevel=3)
        makers[argnum] = maker
        defvjp(f, *[makers[i] for i in sorted(makers)], argnums=sorted(makers))

    def of_old(rule: Callable, argnum: int) -> Callable:
        return lambda ans, *args, **kwargs: lambda g: rule(
            g, ans, vspace(args[argnum]), vspace(g), *args, **kwargs)

    def defvjp_is_zero(argnums: Iterable[int] = (0,)) -> None:
        for i in argnums:
            declare("defvjp_is_zero", i, None)

    f.defvjp = lambda rule, argnum=0: declare("defvjp", argnum, of_old(rule, argnum))
    f.defgrad = lambda maker, argnum=0: declare("defgrad", argnum, maker)
    f.defvjp_is_zero = defvjp_is_zero
    return f


primitive = primitive_with_deprecation_warnings

__all__ = [
    "ArrayVSpace", "Box", "ComplexArrayVSpace", "ContainerVSpace", "JVPNode", "Node",
    "SparseObject", "VJPNode", "VSpace", "def_linear", "defjvp", "defjvp_argnum", "defjvp_argnums",
    "defvjp", "defvjp_argnum", "defvjp_argnums", "func", "getval", "isbox", "make_jvp", "make_vjp",
    "primitive", "primitive_", "primitive_jvps", "primitive_vjps",
    "primitive_with_deprecation_warnings", "subval", "sum_outgrads", "toposort", "trace", "vspace",
]
__getattr__ = missing(__name__)
