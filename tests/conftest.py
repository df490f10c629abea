"""Hypothesis profiles: few draws, always the same; FUNCTRANS_PROFILE=thorough draws many.

Compiled code is kept in a directory of the test run, never in the user's cache.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests import drawing, sampled

settings.register_profile(
    "quick",
    max_examples=15,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough",
    max_examples=300,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("FUNCTRANS_PROFILE", "quick"))

if "PYTEST_XDIST_WORKER" not in os.environ:  # a worker has the directory of who started it
    os.environ["FUNCTRANS_CACHE_DIR"] = tempfile.mkdtemp(prefix="functrans-tests-")
    atexit.register(shutil.rmtree, os.environ["FUNCTRANS_CACHE_DIR"], ignore_errors=True)
if settings.get_current_profile_name() == "quick":
    # numba's kernels are small here, and take four times as long to optimise as to write
    os.environ.setdefault("NUMBA_OPT", "0")
gc.disable()  # while tests are collected, which makes a million objects and no garbage
WHOLE = 10_000  # tests that a run of the whole suite collects, at least
BYTECODE = os.path.join(os.environ["FUNCTRANS_CACHE_DIR"], "bytecode")


@pytest.fixture(scope="session", autouse=True)
def bytecode_of_processes():
    """Processes that tests start compile no module twice, even where no bytecode is kept."""
    if sys.dont_write_bytecode:
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ["PYTHONPYCACHEPREFIX"] = BYTECODE


@pytest.fixture
def unoptimised():
    """What is compiled is not optimised, which takes six times as long; in a thorough run it is.

    For tests of what programs compute, not of how they are compiled.
    """
    from tests import compiling  # lazy: functrans reads the environment that is set above

    with compiling.without_optimising():
        yield


@pytest.fixture
def seldom_optimised(request):
    """A quarter of the cases of a test, told by their names, are optimised; the others are not.

    For tests of many cases that also see whether LLVM's passes keep their results.
    """
    from tests import compiling  # lazy: as above

    with compiling.seldom_optimising(request.node.nodeid):
        yield


@pytest.fixture(scope="session", autouse=True)
def whole_tracebacks():
    """A test that fails shows where."""
    from functrans import config  # after the directory of compiled code is set

    config.set(tracebacks="full")


def pytest_collection_modifyitems(config, items):
    """Leave out some cases of the tests that ``tests/sampled.py`` lists, always the same ones."""
    if settings.get_current_profile_name() != "quick" or len(items) < WHOLE:
        return
    left = [item for item in items if sampled.is_left_out(item.nodeid)]
    out = set(left)
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=left)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Collections of garbage need not go through the 30,000 tests that there are, each time."""
    gc.enable()
    gc.freeze()


def pytest_runtest_teardown(item, nextitem):
    """Nor through what earlier modules have left in caches."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_runtest_setup():
    """What a test draws does not depend on those that ran before."""
    drawing.start_anew()


# Read by type checkers alone: the second is wrong on purpose.
collect_ignore = ["typing"]
