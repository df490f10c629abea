"""``Primitive``: a row of the table. The four families in ``_ops/declare.py`` derive its rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from functrans._core.aval import Aval
from functrans._core.bind import bind


class Primitive:
    """An operation that every transform knows how to handle. Called, it binds.

    A family fills in the methods below from what the row declares. In all of them ``xs`` are the
    operands (values that a rule did not ask to be saved are given as ``Aval``), ``ts`` and ``ct``
    tangents and cotangent, None where absent, and ``params`` the static parameters.
    """

    # of elementwise and bilinear rows, an action for each operand
    actions: tuple[Any, ...]
    # of elementwise rows, what makes their entry on a tape (``_ops/declare.py``)
    entry: Callable[..., tuple]

    __slots__ = ("abstract", "at_kink", "differentiable", "doc", "domain", "impl", "kinks",
                 "lowering", "name", "native_from", "outputs")

    def __init__(
        self,
        name: str,
        impl: Callable,
        *,
        abstract: Callable | None = None,
        domain: str = "",
        kinks: str = "",
        at_kink: Callable | None = None,
        doc: str = "",
        outputs: int = 1,
        differentiable: bool = True,
        native_from: str = "",
    ):
        self.name = name
        self.impl = impl
        self.abstract = abstract or self.default_abstract
        self.domain = domain
        self.kinks = kinks
        # where ndarray operands are at a kink, as booleans: read only while kinks are watched
        self.at_kink = at_kink
        self.doc = doc
        self.outputs = outputs
        self.differentiable = differentiable
        # the size in ``_kernels/sizes`` from which native code pays for it on plain arrays
        self.native_from = native_from
        self.lowering: Callable | None = None

    def __repr__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **params: Any) -> Any:
        return bind(self, *args, **params)

    def default_abstract(self, *xs: Aval, **params: Any) -> Any:
        """Shapes and dtypes of the outputs from those of the operands."""
        raise NotImplementedError(self.name)

    def saves(self, wanted: Sequence[bool], params: dict) -> tuple[bool, tuple[bool, ...]]:
        """Whether the backward rule needs the output, and which operands, by value."""
        raise NotImplementedError

    def jvp(self, ts: Sequence, y: Any, xs: Sequence, params: dict) -> Any:
        """The output's tangent (a tuple of them where there are several outputs)."""
        raise NotImplementedError

    def vjp(self, ct: Any, y: Any, xs: Sequence, params: dict, wanted: Sequence[bool]) -> Sequence:
        """One cotangent an operand, None where it is not wanted or exactly zero."""
        raise NotImplementedError

    def batch(self, size: int, xs: Sequence, batched: Sequence[bool], params: dict) -> Any:
        """The output with a new axis 0, given that operands with ``batched`` have one."""
        raise NotImplementedError
