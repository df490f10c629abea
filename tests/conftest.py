"""Hypothesis profiles: few draws, always the same; FUNCTRANS_PROFILE=thorough draws many.

Compiled code is kept in a directory of the test run, never in the user's cache.
"""

import atexit
import os
import shutil
import tempfile

from hypothesis import HealthCheck, settings

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

os.environ["FUNCTRANS_CACHE_DIR"] = tempfile.mkdtemp(prefix="functrans-tests-")
atexit.register(shutil.rmtree, os.environ["FUNCTRANS_CACHE_DIR"], ignore_errors=True)

# Read by type checkers alone: the second is wrong on purpose.
collect_ignore = ["typing"]
