"""Functions of PyTorch and of JAX here, and ours there and in PyTensor, with their derivatives.

No such library is needed to import this module, or imported before one of its functions is called.
Arrays go both ways by DLPack: ``torch.from_dlpack(x)`` and ``functrans.numpy.from_dlpack(t)`` share
memory. JAX takes no memory that is read-only, as an ``Array`` is: ``jnp.asarray(x)`` copies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans._transforms.arguments import require_callable
from functrans._transforms.derived import deriving
from functrans._transforms.rules.external import ExternalFunction
from functrans.errors import ArgumentError, name_of


@deriving
def torch_function(f: Callable) -> Callable:
    """``f`` as a function of PyTorch's tensors, which its autograd differentiates.

    Tensors among the arguments, in containers too, become arrays of NumPy's, those on the processor
    without a copy, and results become tensors on the same device, of their own memory. Backward,
    double backward and forward mode are derivatives of ``f``, to any order; ``torch.func`` takes
    the function, and ``vmap`` calls it once for each entry. Where ``f`` is jitted, derivatives are
    compiled too.

    >>> import functrans as ft, numpy as np
    >>> energy = ft.torch_function(ft.jit(lambda x: np.sum(np.sin(x) ** 2)))
    >>> x = torch.ones(3, requires_grad=True)  # doctest: +SKIP
    >>> energy(x).backward()  # doctest: +SKIP
    """
    require_callable("torch_function", f)
    from functrans._interop.of_torch import function  # lazy: few need it

    return function(f)


def jax_function(f: Callable) -> Callable:
    """``f`` as a function of JAX's arrays, a callback that JAX differentiates in reverse mode.

    It may be called under ``jax.jit``, ``jax.grad`` and ``jax.vmap`` (one call for each entry), to
    any order of reverse mode; in forward mode it raises NotDifferentiable, inside of ``jax.jit``
    JAX's own TypeError. Integers that JAX's dtype does not hold raise. Arrays among the arguments,
    in containers too, become arrays of NumPy's; floats count as arrays. ``f`` has to give results
    of the same shapes for arguments of the same shapes. Where ``f`` is jitted, derivatives are
    compiled too.

    >>> import functrans as ft, numpy as np
    >>> energy = ft.jax_function(ft.jit(lambda x: np.sum(np.sin(x) ** 2)))
    >>> jax.jit(jax.grad(energy))(jnp.ones(3))  # doctest: +SKIP
    """
    require_callable("jax_function", f)
    from functrans._interop.of_jax import function  # lazy: few need it

    return function(f)


def pytensor_function(f: Callable, *examples: Any) -> Callable:
    """``f`` as a function of PyTensor's variables, for graphs that are differentiated, as PyMC's.

    It takes variables where the examples have arrays, of as many axes, and converts them to those
    dtypes. Gradients, of any order, are derivatives of ``f``. Where ``f`` is jitted, derivatives
    are compiled too.

    >>> import functrans as ft, numpy as np
    >>> f = ft.interop.pytensor_function(lambda x: np.sum(x**2), np.ones(3))  # doctest: +SKIP
    >>> pytensor.grad(f(x), x)  # doctest: +SKIP
    """
    require_callable("pytensor_function", f)
    if not examples:
        raise ArgumentError(
            f"pytensor_function: `{name_of(f)}` needs arrays like those it will get, as examples"
        )
    from functrans._interop.of_pytensor import function  # lazy: few need it

    return function(f, examples)


def from_torch(f: Callable, *, outputs: int = 1) -> ExternalFunction:
    """``f``, a function of PyTorch's tensors, as one of arrays that every transform takes.

    ``f(*tensors)`` returns a tensor, or a tuple of as many as ``outputs`` says. Its derivatives, of
    any order, are those of ``torch.func``; ``vmap`` runs it once for each entry, and compiled code
    leaves for it and comes back, as with ``functrans.external``.

    >>> import functrans as ft
    >>> f = ft.interop.from_torch(lambda t: t.sin().sum())
    >>> ft.grad(f)(np.zeros(2))  # doctest: +SKIP
    Array([1., 1.])
    """
    require_callable("from_torch", f)
    from functrans._interop import of_torch  # lazy: few need it
    from functrans._transforms.rules.foreign import foreign  # lazy: few need it

    return foreign(f, of_torch, outputs)


def from_jax(f: Callable, *, outputs: int = 1) -> ExternalFunction:
    """``f``, a function of JAX's arrays, as one of NumPy's arrays that every transform takes.

    As ``from_torch``. Raises ArgumentError for float64 where JAX is not set to compute in it.

    >>> import functrans as ft
    >>> f = ft.interop.from_jax(lambda x: jnp.sum(jnp.sin(x)))
    >>> ft.grad(f)(np.zeros(2))  # doctest: +SKIP
    Array([1., 1.])
    """
    require_callable("from_jax", f)
    from functrans._interop import of_jax  # lazy: few need it
    from functrans._transforms.rules.foreign import foreign  # lazy: few need it

    return foreign(f, of_jax, outputs)


__all__ = ["from_jax", "from_torch", "jax_function", "pytensor_function", "torch_function"]
