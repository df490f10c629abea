"""``torch.func``: functrans itself, whose functions take and return arrays.

>>> import numpy as np
>>> from functrans import torch
>>> torch.func.grad(lambda x: np.sum(x * x))(np.ones(2))
Array([2., 2.])
"""

from functrans import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
    vmap,
)

__all__ = [
    "grad", "hessian", "jacfwd", "jacobian", "jacrev", "jvp", "linearize", "value_and_grad", "vjp",
    "vmap",
]
