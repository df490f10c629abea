"""Compiling without optimising, for tests that are not about compiled code."""

import functools
import zlib
from contextlib import nullcontext

from functrans._compile.run import machine
from functrans._compile.run.machine import _host
from tests.covering import THOROUGH


class Unoptimised(machine.Machine):
    level = 0

    def compile_own(self, text, names, title):
        """Functions that the process keeps for all programs are the same whatever ran before."""
        return _host().compile_own(text, names, title)


_unoptimised = functools.cache(Unoptimised)


def without_optimising():
    """A block in which nothing is optimised, unless in a thorough run."""
    return nullcontext() if THOROUGH else machine.choose(_unoptimised())


def seldom_optimising(name):
    """A block in which something is optimised for a quarter of all names; always for the same."""
    return nullcontext() if zlib.crc32(name.encode()) % 4 == 0 else without_optimising()
