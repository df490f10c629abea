"""Python's containers, which hold traced values as they are, and questions about traced values."""

from __future__ import annotations

import builtins

from functrans.autograd._names import missing
from functrans.autograd._primitives import notrace_primitive
from functrans.autograd._runs import is_traced_in

isinstance_, type_ = builtins.isinstance, builtins.type
tuple = tuple_ = builtins.tuple
list = list_ = builtins.list
dict = dict_ = builtins.dict
isinstance = notrace_primitive(builtins.isinstance)
isinstance.__doc__ = """``isinstance`` of the value inside of a traced one."""
type = notrace_primitive(builtins.type)
type.__doc__ = """``type`` of the value inside of a traced one."""


class _OfContainers(type_):
    kinds: tuple_

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance_(x, cls.kinds) and is_traced_in(x)


class SequenceBox(metaclass=_OfContainers):
    """The class of lists and tuples with a traced value in them, for ``isinstance``."""

    kinds = (list_, tuple_)


class DictBox(metaclass=_OfContainers):
    """The class of dicts with a traced value in them, for ``isinstance``."""

    kinds = (dict_,)


__all__ = ["DictBox", "SequenceBox", "dict", "isinstance", "list", "tuple", "type"]
__getattr__ = missing(__name__)
