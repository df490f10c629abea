"""When the derivatives in a program have strong zero: the bare formulas run first, as eagerly.

``_ops/declare.py`` says what strong zero is. A zero times an infinity is a NaN, and a NaN does not
vanish by itself, so what a derivative hands out shows whether it was needed. Eagerly a walk looks
there. A program is written before there are values: what its derivatives hand out goes through the
row ``checked`` (``_ops/arrivals.py``), and code that meets a NaN there gives up. The function is
then staged once more, with strong zero in every product, and that program serves from then on.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from functrans._core.bind import is_staged


class NanArrived(BaseException):
    """A program met a NaN in a derivative. Not an Exception, which a user's function may catch."""


class Products(enum.Enum):
    """How the products in the derivatives of a program are formed."""

    BY_ROW = "with strong zero where rows say that a zero may meet an infinity"
    BARE = "bare: who runs the program looks for a NaN in what it returns"
    CHECKED = "bare, and what is handed out is checked"
    STRONG = "with strong zero"

    @property
    def bare(self) -> bool:
        return self in (Products.BARE, Products.CHECKED)


_products: ContextVar[Products] = ContextVar("products", default=Products.BY_ROW)
products = _products.get


@contextmanager
def forming(how: Products) -> Iterator[None]:
    """While a program is written: its products are formed so."""
    before = _products.get()
    try:
        _products.set(how)
        yield
    finally:
        _products.set(before)


def inside(strong: bool, operands: Sequence) -> Products:
    """How the derivative of a program that is called is written: the caller looks at the end."""
    how = products()
    if strong or how is Products.STRONG:
        return Products.STRONG
    return Products.BARE if how.bare or not any(map(is_staged, operands)) else how
