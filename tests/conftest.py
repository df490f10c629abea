"""Hypothesis profiles: few draws, always the same; FUNCTRANS_PROFILE=thorough draws many."""

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
