"""Compiling without optimising, for tests that are not about compiled code."""

import functools

from functrans._compile.run import machine
from functrans._compile.run.machine import _host


class Unoptimised(machine.Machine):
    level = 0

    def compile_own(self, text, name, title):
        """Functions that the process keeps for all programs are the same whatever ran before."""
        return _host().compile_own(text, name, title)


_unoptimised = functools.cache(Unoptimised)


def without_optimising():
    return machine.choose(_unoptimised())
