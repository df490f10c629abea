"""What one extends autograd by: ops with rules of one's own, and vector spaces."""

from __future__ import annotations

from functrans.autograd._names import missing
from functrans.autograd._primitives import primitive
from functrans.autograd.core import (
    JVPNode,
    SparseObject,
    VJPNode,
    VSpace,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    vspace,
)
from functrans.autograd.tracer import Box, notrace_primitive, register_notrace

__all__ = [
    "Box", "JVPNode", "SparseObject", "VJPNode", "VSpace", "def_linear", "defjvp", "defjvp_argnum",
    "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums", "notrace_primitive", "primitive",
    "register_notrace", "vspace",
]
__getattr__ = missing(__name__)
