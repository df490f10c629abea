"""Derivative matrices: many tangents or cotangents at once, as one batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

from functrans._transforms.arguments import Argnums, require_callable
from functrans._transforms.derived import deriving
from functrans._transforms.matrices.budget import MatrixFunction
from functrans._transforms.matrices.matrix import Options, matrix_function, options_of
from functrans._transforms.options import require_choice

if TYPE_CHECKING:
    from concurrent.futures import Executor

P = ParamSpec("P")


@overload
def jacobian(
    f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    mode: str = ..., chunk_size: int | str | None = ..., memory: int | str | None = ...,
    out: Any = ..., progress: bool = ..., executor: Executor | None = ...,
) -> MatrixFunction[P]: ...


@overload
def jacobian(
    f: None = None, argnums: Argnums = ..., *, has_aux: bool = ..., holomorphic: bool = ...,
    mode: str = ..., chunk_size: int | str | None = ..., memory: int | str | None = ...,
    out: Any = ..., progress: bool = ..., executor: Executor | None = ...,
) -> Callable[[Callable[P, Any]], MatrixFunction[P]]: ...


@deriving
def jacobian(
    f: Any = None,
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    mode: str = "auto",
    chunk_size: int | str | None = "auto",
    memory: int | str | None = None,
    out: Any = None,
    progress: bool = False,
    executor: Executor | None = None,
) -> Callable:  # as the overloads say
    """The matrix of first derivatives, ``J[i, j] = df_i/dx_j``.

    The shape is ``out.shape + in.shape``; of containers, a container of containers ``J[out][in]``.
    ``mode``: "forward" takes one pass for all inputs, "reverse" one for all outputs, "auto" records
    the function once and takes the fewer, or both from a narrow place of the function, the mixed
    mode. Of large matrices that are mostly 0, sums of directions are taken instead, the compressed
    mode. ``explain(*args)`` of what is returned says which and why, and ``memory(*args)`` how many
    bytes a call is expected to take.

    ``chunk_size`` bounds how many run at once ("auto": by the memory of what the function computes,
    None: all). ``memory``, bytes or a text such as "2 GiB", bounds what a chunk may take beside the
    result. ``out``, an array or a container of them, also on disk (``np.memmap``), is filled and
    returned; ``f`` must not read it. ``progress`` shows a bar. Ctrl-C ends the call at once;
    what ``out`` holds then is incomplete. With an ``executor`` of ``concurrent.futures``, which
    needs a ``chunk_size``, chunks run on its threads or processes, each with a run of ``f`` of its
    own.

    Complex: of complex functions of real numbers, the complex derivatives; of real functions of
    complex numbers the rows are gradients as in ``grad``; of complex functions of complex numbers,
    the holomorphic derivative, and NotDifferentiable where there is none. ``holomorphic=True``
    promises that there is one, which saves half the work.

    Raises OutOfMemoryError where the matrix would not fit into memory, or one direction alone not
    into ``memory``.

    >>> import functrans as ft, numpy as np
    >>> ft.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]])
    """
    function, options = _open(
        jacobian, f, argnums, has_aux, holomorphic, chunk_size, memory, out, progress, executor,
        mode=mode)
    require_choice("jacobian", "mode", mode, ("auto", "forward", "reverse"))
    return matrix_function("jacobian", function, argnums, has_aux, mode, options)


def _open(
    transform: Any, f: Any, argnums: Argnums, has_aux: bool, holomorphic: bool, chunk_size: Any,
    memory: Any, out: Any, progress: bool, executor: Any, **more: Any,
) -> tuple[Callable, Options]:
    """The function of a call of ``transform``, and its options."""
    who = transform.__name__
    function = require_callable(who, f)
    alone = functools.partial(transform, f, argnums, has_aux=has_aux, holomorphic=holomorphic,
                              chunk_size=chunk_size, **more)
    return function, options_of(
        who, holomorphic, chunk_size, memory, out, progress, executor, alone)


class _InOneMode(Protocol):
    """``jacfwd``, ``jacrev`` and ``hessian``: of a function, or a decorator with options alone."""

    @overload
    def __call__(
        self, f: Callable[P, Any], argnums: Argnums = ..., *, has_aux: bool = ...,
        holomorphic: bool = ..., chunk_size: int | str | None = ...,
        memory: int | str | None = ..., out: Any = ..., progress: bool = ...,
        executor: Executor | None = ...,
    ) -> MatrixFunction[P]: ...

    @overload
    def __call__(
        self, f: None = None, argnums: Argnums = ..., *, has_aux: bool = ...,
        holomorphic: bool = ..., chunk_size: int | str | None = ...,
        memory: int | str | None = ..., out: Any = ..., progress: bool = ...,
        executor: Executor | None = ...,
    ) -> Callable[[Callable[P, Any]], MatrixFunction[P]]: ...


def _in_one_mode(transform: Callable) -> _InOneMode:
    """``transform(function, argnums, has_aux, options)`` as its user calls it."""

    def matrices(
        f: Any = None,
        argnums: Argnums = 0,
        *,
        has_aux: bool = False,
        holomorphic: bool = False,
        chunk_size: int | str | None = "auto",
        memory: int | str | None = None,
        out: Any = None,
        progress: bool = False,
        executor: Executor | None = None,
    ) -> Any:  # as the overloads say
        function, options = _open(
            public, f, argnums, has_aux, holomorphic, chunk_size, memory, out, progress, executor)
        return transform(function, argnums, has_aux, options)

    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(matrices, name, getattr(transform, name))
    public = deriving(matrices)
    return public


@_in_one_mode
def jacfwd(f: Callable, argnums: Argnums, has_aux: bool, options: Options) -> Callable:
    """``jacobian`` with ``mode="forward"``: best for few inputs; keeps no tape.

    >>> import functrans as ft, numpy as np
    >>> ft.jacfwd(lambda t: np.stack([np.cos(t), np.sin(t)]))(0.0)
    Array([-0.,  1.])
    """
    return matrix_function("jacfwd", f, argnums, has_aux, "forward", options)


@_in_one_mode
def jacrev(f: Callable, argnums: Argnums, has_aux: bool, options: Options) -> Callable:
    """``jacobian`` with ``mode="reverse"``: best for few outputs.

    >>> import functrans as ft, numpy as np
    >>> ft.jacrev(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
    Array([2., 4.])
    """
    return matrix_function("jacrev", f, argnums, has_aux, "reverse", options)


@_in_one_mode
def hessian(f: Callable, argnums: Argnums, has_aux: bool, options: Options) -> Callable:
    """The matrix of second derivatives, ``H[i, j] = d^2 f / dx_i dx_j``.

    Forward over reverse: the gradient's own run, on dual numbers carrying a batch of basis vectors.
    Of a function with several outputs, their Hessians stacked, ``out.shape + in.shape + in.shape``.
    ``chunk_size``, ``memory``, ``out`` and ``progress`` as for ``jacobian``, and so are ``explain``
    and ``memory`` of what is returned.

    >>> import functrans as ft, numpy as np
    >>> ft.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 2.0]))
    Array([[4., 2.],
           [2., 0.]])
    """
    inner = options._replace(memory=None, out=None, progress=False, executor=None)
    first = matrix_function("hessian", f, argnums, has_aux, "reverse", inner)
    return matrix_function("hessian", first, argnums, has_aux, "forward", options)
