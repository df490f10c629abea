"""Hypothesis profiles: FUNCTRANS_PROFILE=thorough draws more; the default draws few, and always the same."""

import os

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
