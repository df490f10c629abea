"""Python's containers, which hold traced values as they are, and questions about traced values."""

from __future__ import annotations

import builtins

from functrans.autograd._names import missing
from functrans.autograd._primitives import notrace_primitive

isinstance_, type_ = builtins.isinstance, builtins.type
tuple = tuple_ = builtins.tuple
list = list_ = builtins.list
dict = dict_ = builtins.dict
isinstance = notrace_primitive(builtins.isinstance)
isinstance.__doc__ = """``isinstance`` of the value inside of a traced one."""
type = notrace_primitive(builtins.type)
type.__doc__ = """``type`` of the value inside of a traced one."""

__all__ = ["dict", "isinstance", "list", "tuple", "type"]
__getattr__ = missing(__name__)
