"""Nests: what is printed, and what is refused."""

import numpy as np
import pytest

from functrans._compile.ir.program import check
from functrans._compile.nest.equation import Nest
from functrans._compile.nest.forms import Form, Index
from functrans._compile.nest.ir import For, If, Place, Store, Unproved
from functrans._core.array import Aval
from tests.compile.nest.examples import buffer, entry, trisolv, unused, zero


def test_a_nest_prints_a_line_for_each_statement():
    assert (
        trisolv(3).text()
        == """\
nest L:float64[3,3], b:float64[3]
  for 0 <= i < 3:
    t[] = <float64[]>
    t[] += multiply(L[i,k], x[k])  for k<i
    x[i] = divide(subtract(b[i], t[]), L[i,i])
return x:float64[3]""".replace("<float64[]>", "0.0")
    )


def built(*body):
    return Nest("drawn", (), (), body, unused)


def test_places_outside_of_their_buffer_are_refused():
    x, i = buffer("x", 5), Index("i")
    inside = entry(Store.of(x, Form.of(i) + 1), lambda v: v, Place.of(x, i))
    built(For(i, Form(0), Form(4), (inside,)))
    with pytest.raises(Unproved, match=r"x\[i\+1\]: -i\+3 >= 0 is not proved"):
        built(For(i, Form(0), Form(5), (inside,)))
    with pytest.raises(Unproved, match=r"x\[i\]"):
        built(For(i, Form(-1), Form(4), (inside,)))
    built(For(i, Form(-1), Form(5), (If((Form.of(i), 3 - Form.of(i)), None, (inside,)),)))


def test_an_entry_that_reads_what_another_pass_of_it_writes_is_refused():
    x, k = buffer("x", 5), Index("k")
    with pytest.raises(Unproved, match="one pass stores"):
        built(entry(Store.of(x, Form.of(k) + 1), lambda v: v, Place.of(x, k), axes=[(k, 4)]))
    built(entry(Store.of(x, Form.of(k) * 2), lambda v: v, Place.of(x, 1), axes=[(k, 2)]))
    with pytest.raises(Unproved, match="one pass stores"):
        built(entry(Store.of(x, 0), lambda v: v, Place.of(buffer("y", 4), k), axes=[(k, 4)]))


def test_a_condition_that_its_branch_writes_is_refused():
    c = buffer("c", dtype=bool)
    with pytest.raises(Unproved, match="written where it decides"):
        built(If((), Place.of(c), (zero(c),)))


def test_stores_that_nobody_reads_are_pruned_and_so_are_operands():
    nest = trisolv(3)
    found = nest.pruned([False])
    assert found is not None
    less, needed, outs = found
    assert (less.operands, less.outs, less.body, needed, outs) == ((), (), (), [False] * 2, [False])


def test_types_of_a_nest_are_those_of_its_buffers():
    nest = trisolv(3)
    assert nest.operand_types() == [Aval((3, 3), np.dtype(float)), Aval((3,), np.dtype(float))]
    assert nest.output_types() == [Aval((3,), np.dtype(float))]
    check(nest.entries[1].program)
