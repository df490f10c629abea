"""Names that are not here: the error says what to write instead."""

import numpy as np
import pytest

import functrans as ft
from functrans import _other_names


@pytest.mark.parametrize(("name", "instead"), [
    ("nn.relu", r"np\.maximum\(x, 0\)"), ("lax.scan", "functrans.scan"), ("lax.sin", "np.sin"),
    ("lax.dynamic_slice", r"x\[i:i \+ n\]"), ("ops.segment_sum", "functrans.segment_sum"),
    ("ops.segment_max", r"\.at\[i\]\.max"), ("lax.zzz", "docs/howto/jax.md"),
    ("pmap", "write functrans.parallel"), ("random.PRNGKey", "write random.key"),
    ("zzz", "no attribute 'zzz'$"), ("random.zzz", "no attribute 'zzz'$"),
])
def test_a_name_of_jax_that_is_not_here_names_its_equivalent(name, instead):
    *path, last = name.split(".")
    home = ft if not path else getattr(ft, path[0])
    with pytest.raises(AttributeError, match=instead):
        getattr(home, last)


def test_what_is_named_instead_is_there():
    texts = [text for names in (_other_names.MODULES | _other_names.NAMES).values()
             for text in names.values()]
    names = {word.strip("(),;") for text in texts for word in text.split()}
    for name in names:
        if name.startswith("functrans."):
            eval(name.split("(")[0], {"functrans": ft})
        elif name.startswith("np."):
            eval(name.split("(")[0].rstrip("."), {"np": np})
    assert len(names) > 100
