"""The options of sparse derivatives, and what each may be."""

from __future__ import annotations

from typing import Any, NamedTuple

from functrans._transforms.arguments import Argnums, plain_argnums
from functrans._transforms.options import require_choice

FORMATS = ("csr", "csc", "coo")
ORDERS = ("largest_first", "natural", "incidence_degree", "smallest_last", "saturation")
COLORINGS = {
    "sparse_jacobian": ("auto", "column", "row", "bidirectional"),
    "sparse_hessian": ("auto", "star", "acyclic", "column"),
}


class Options(NamedTuple):
    """As the user gives them; ``sparsity`` is a pattern, None to read it off the function."""

    argnums: Argnums = 0
    sparsity: Any = None
    format: str = "csr"
    coloring: str = "auto"
    order: str = "largest_first"

    def checked(self, who: str) -> Options:
        """Raise where one is none of the choices."""
        for name, choices in (
            ("format", FORMATS), ("order", ORDERS), ("coloring", COLORINGS[who])
        ):
            require_choice(who, name, getattr(self, name), choices)
        return self._replace(argnums=plain_argnums(who, self.argnums))
