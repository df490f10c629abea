"""Is the table of SciPy's names what SciPy, functrans.scipy and the page have?"""

import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
import scipy.special

import functrans as ft
from functrans._core.scipy_names import NAMES
from functrans.errors import ConcretizationError
from functrans.numpy.protocols import UFUNCS

ROOT = Path(__file__).resolve().parent.parent
PAGE = runpy.run_path(str(ROOT / "docs" / "scipy_page.py"))


@pytest.mark.parametrize("namespace", NAMES)
def test_the_table_has_only_names_of_scipy_and_each_once(namespace):
    listed = " ".join(NAMES[namespace]).split()
    assert sorted(listed) == sorted(set(listed))
    module = importlib.import_module(f"scipy.{namespace}")
    assert [name for name in listed if not hasattr(module, name)] == []


@pytest.mark.parametrize("namespace", NAMES)
def test_what_the_table_calls_ours_is_declared_and_the_rest_is_scipy_s(namespace):
    ours = importlib.import_module(f"functrans.scipy.{namespace}")
    theirs = importlib.import_module(f"scipy.{namespace}")
    mine = {n for n in dir(theirs) if not n.startswith("_")
            and getattr(ours, n) is not getattr(theirs, n)
            and getattr(getattr(ours, n), "__wrapped__", None) is not getattr(theirs, n)
            and f"{namespace}.{n}" not in NAMES}
    assert mine == set(NAMES[namespace].ours.split())
    assert all(getattr(ours, name).__doc__ for name in mine)


@pytest.mark.parametrize("namespace", NAMES)
def test_every_counterpart_is_in_the_table(namespace):
    package = importlib.import_module(f"functrans.scipy.{namespace}")
    theirs = importlib.import_module(f"scipy.{namespace}")
    folder = vars(package).get("__path__", ())
    modules = [importlib.import_module(f"{package.__name__}.{m.name}")
               for m in pkgutil.iter_modules(folder)]
    declared = {n for m in modules for n, x in vars(m).items()
                if n[0] != "_" and hasattr(theirs, n) and hasattr(x, "__wrapped__")}
    assert declared <= set(NAMES[namespace].ours.split())


@pytest.mark.parametrize("namespace", NAMES)
def test_ufuncs_with_a_meaning_are_those_of_the_table(namespace):
    importlib.import_module(f"functrans.scipy.{namespace}")
    module = importlib.import_module(f"scipy.{namespace}")
    known = {n for n in PAGE["functions"](namespace) if getattr(module, n) in set(UFUNCS)}
    named = {n for n in f"{NAMES[namespace].called} {NAMES[namespace].constant}".split()
             if isinstance(getattr(module, n), np.ufunc)}
    assert known == named


def test_a_traced_value_in_scipy_s_own_function_names_the_import_and_the_line():
    line = sys._getframe().f_lineno + 2
    with pytest.raises(ConcretizationError, match="logsumexp") as caught:
        ft.grad(lambda x: scipy.special.logsumexp(x))(np.ones(2))
    assert re.fullmatch(
        rf"{re.escape(__file__)}:{line}: scipy\.special\.logsumexp got <float64\[2\] traced by .*"
        r"Take special\.logsumexp of functrans.*from functrans\.scipy import special\.",
        str(caught.value),
    )


def test_a_function_without_a_counterpart_says_so():
    with pytest.raises(ConcretizationError, match=r"special\.stirling2 got .*no counterpart"):
        ft.grad(lambda x: scipy.special.stirling2(x, 2))(3.0)


def test_scipy_that_asks_for_a_float_is_named_too():
    with pytest.raises(ConcretizationError, match=r"scipy\.linalg\.\w+ got .*Wrap .*ft\.external"):
        ft.grad(lambda x: scipy.linalg.signm(x).sum())(np.eye(2))


def test_what_a_user_s_function_does_inside_of_scipy_is_not_scipy_s_doing():
    def objective(x):
        return ft.grad(lambda y: np.asarray(y).sum())(x)

    with pytest.raises(ConcretizationError, match=r"cannot become a plain ndarray"):
        scipy.optimize.approx_fprime(np.ones(1), objective)


def test_importing_functrans_imports_no_scipy():
    program = (
        "import functrans as ft, sys\n"
        "assert 'scipy' in ft.__all__ and ft.scipy.__all__\n"
        "print([m for m in sys.modules if m.startswith('scipy')])\n"
        "import scipy.special\n"
        "print(float(ft.grad(scipy.special.erf)(0.0)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True)
    assert done.stdout.splitlines() == ["[]", str(2 / np.sqrt(np.pi))]


def test_a_name_that_is_neither_ours_nor_scipy_s_is_an_attribute_error():
    with pytest.raises(AttributeError, match=r"functrans\.scipy' has no attribute 'cluster'"):
        _ = ft.scipy.cluster
    with pytest.raises(AttributeError, match=r"special' has no attribute 'gama', and neither has"):
        _ = ft.scipy.special.gama


def test_plain_arrays_run_scipy_s_own_function():
    x = np.array([1, 2, 3])
    assert ft.scipy.special.logsumexp(x) == scipy.special.logsumexp(x)
    assert ft.scipy.special.comb(5, 2, exact=True) == 10
    assert type(ft.scipy.special.softmax([0.0, 1.0])) is np.ndarray
