"""The names of the package autograd, on functrans: programs that import it run as they are.

>>> import functrans.autograd.numpy as np
>>> from functrans.autograd import grad
>>> grad(lambda x: np.sum(np.tanh(x)))(np.zeros(2))
array([1., 1.])

``install()`` puts the package in the place of autograd for ``import autograd``, and so does
``python -m functrans.autograd program.py``. Results, errors and conventions are autograd's: plain
ndarrays, gradients of complex arguments ``df/da - i df/db``, a symmetric gradient of ``cholesky``.
The page docs/howto/autograd.md says what differs.
"""

from __future__ import annotations

from functrans.autograd import core
from functrans.autograd._names import missing
from functrans.autograd.builtins import dict, isinstance, list, tuple, type
from functrans.autograd.core import primitive
from functrans.autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)
from functrans.autograd.install import install
from functrans.autograd.numpy import numpy_boxes
from functrans.numpy.public import attach

attach(numpy_boxes)

__all__ = [
    "checkpoint", "core", "deriv", "dict", "elementwise_grad", "grad", "grad_and_aux", "grad_named",
    "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad", "install",
    "isinstance", "jacobian", "list", "make_ggnvp", "make_hvp", "make_jvp", "make_jvp_reversemode",
    "make_vjp", "multigrad_dict", "primitive", "tensor_jacobian_product", "tuple", "type",
    "value_and_grad", "vector_jacobian_product",
]
__getattr__ = missing(__name__)
