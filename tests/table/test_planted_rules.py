"""Does a test of the table notice when one rule of one row is wrong?

For each row and mode a sign is turned, and a term dropped, in the rule that the row declares; no
file is edited. The tests of that row must fail. A mode that has a second rule somewhere, which runs
in place of the declared one, shows here: its tests do not notice.
"""

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import functrans as ft
from functrans._ops.declare import TABLE, Bilinear, Elementwise, General, Linear
from functrans._ops.indexing import ARRAY
from tests.table import test_calculus, test_table

# A test of rows, with the cases that it has.
Check = tuple[Callable, list]
SLOPES: list[Check] = [
    (test_table.test_vjp_is_the_transpose_of_jvp, test_table.SMOOTH),
    (test_calculus.test_elementwise_row_against_mpmath, test_calculus.REAL_CASES),
    (test_calculus.test_row_on_complex_operands, test_calculus.COMPLEX_CASES),
    (test_calculus.test_other_row_against_differences, test_calculus.MOVABLE),
    (test_table.test_linear_row_is_its_matrix,
     test_table.cases(lambda row: isinstance(row, Linear | Bilinear))),
]
CHECKS: dict[str, list[Check]] = {
    "slope": SLOPES,
    "jvp": SLOPES,
    "vjp": SLOPES,
    "batch": [(test_table.test_vmap_is_a_loop, test_table.ALL)],
    "abstract": [(test_table.test_abstract_rule_is_the_real_output, test_table.ALL)],
}
# Rules that are wrong without harm at the samples, and the tests that look at them elsewhere.
ELSEWHERE = {
    # the derivative of vectors whose flag is set, which samples have not
    ("vectors_if", "jvp"): "tests/ops/test_coinciding.py",
    ("vectors_if", "vjp"): "tests/ops/test_coinciding.py",
    # a number in place of an array
    **{("item", mode): "tests/jit/test_typed_calls.py"
       for mode in ("jvp", "vjp", "batch", "abstract")},
}
NOTICED = (AssertionError, ValueError, TypeError, IndexError, ArithmeticError, NotImplementedError)


def negated(y):
    """What a rule returns, with the other sign."""
    if isinstance(y, tuple | list):
        return type(y)(map(negated, y))
    return None if y is None else ~y if _is_bool(y) else -1 * y


def dropped(y):
    """What a rule returns, without its one term."""
    if isinstance(y, tuple | list):
        return type(y)(map(dropped, y))
    return None if y is None else y ^ y if _is_bool(y) else 0 * y


def _is_bool(y):
    return getattr(getattr(y, "dtype", None), "kind", "") == "b"


def longer(avals):
    """Shapes with one axis more."""
    if isinstance(avals, tuple) and not hasattr(avals, "dtype"):
        return tuple(map(longer, avals))
    return type(avals)((*avals.shape, 1), avals.dtype)


def after(rule, spoil):
    def wrong(*args, **kwargs):
        return spoil(rule(*args, **kwargs))

    return wrong


def places(row, mode) -> Iterator[tuple[object, str]]:
    """Where a row has the rule of a mode."""
    if mode in ("batch", "abstract"):
        yield row, "abstract" if mode == "abstract" else "_batch"
    elif isinstance(row, General):
        yield row, f"{mode}_rule"
    else:
        for action in [row.action] if isinstance(row, Linear) else row.actions:
            for name in ("act", "on", "pull", "push") if action is not None else ():
                rule = getattr(action, name, None)
                # strong zero calls ``act``, and the tangent of a linear row is the row itself
                linear = name == "push" and not isinstance(row, Elementwise)
                if rule is not None and not linear and getattr(rule, "__name__", "") != "strong":
                    yield action, name
        if isinstance(row, Linear):
            yield row, "transpose"


@contextlib.contextmanager
def planted(row, mode, spoil):
    """The row with a wrong rule."""
    sound = [(holder, name, getattr(holder, name)) for holder, name in places(row, mode)]
    same = [a for a in getattr(row, "actions", ()) if getattr(a, "identity", False)]
    try:
        for holder, name, rule in sound:
            setattr(holder, name, after(rule, spoil))
        for action in same:
            action.identity = False
        yield
    finally:
        for holder, name, rule in sound:
            setattr(holder, name, rule)
        for action in same:
            action.identity = True


def noticed(name, mode, spoil):
    """The test that fails for the row, or None."""
    with planted(TABLE[name], mode, spoil):
        for test, cases in CHECKS[mode]:
            try:
                test([case for case in cases if case[0] == name])
            except NOTICED:
                return test.__name__
    return None


def modes(row) -> Iterator[str]:
    if isinstance(row, General):
        yield from [m for m in ("jvp", "vjp") if getattr(row, f"{m}_rule") is not None]
    elif row.differentiable:
        yield "slope"
    if hasattr(row, "_batch"):
        yield "batch"
    yield "abstract"


RULES = [(name, mode) for name, row in TABLE.items() for mode in modes(row)
         if (name, mode) not in ELSEWHERE]


def read_twice(name):
    """The gradient where two reads of a large array are added up in place."""
    index, x = np.array([3, 1, 3]), np.arange(4000.0)
    _, pull = ft.vjp(lambda x: [TABLE[name](x, index, pattern=(ARRAY,)) for _ in range(2)], x)
    found = pull([np.ones(3), np.array([1.0, 2.0, 4.0])])[0]
    np.testing.assert_array_equal(found[:5], [0, 3, 0, 7, 0])


@pytest.mark.parametrize("name", [n for n, row in TABLE.items()
                                  if getattr(getattr(row, "action", None), "accumulate", None)])
def test_a_wrong_sum_in_place_is_noticed(name, monkeypatch):
    read_twice(name)
    action = TABLE[name].action
    monkeypatch.setattr(action, "accumulate", lambda *args: None)
    with pytest.raises(AssertionError):
        read_twice(name)


@pytest.mark.parametrize(("name", "mode"), RULES, ids=[f"{n}-{m}" for n, m in RULES])
@pytest.mark.filterwarnings("ignore")  # of slopes that are wrong
def test_a_wrong_rule_is_noticed(name, mode):
    spoils = [longer] if mode == "abstract" else [negated, dropped]
    with np.errstate(all="ignore"):
        missed = [spoil.__name__ for spoil in spoils if noticed(name, mode, spoil) is None]
    assert not missed, f"no test of the table notices that the {mode} of {name} is {missed}"
