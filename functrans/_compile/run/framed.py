"""Calls of compiled code: by its C function where it can be one, otherwise step by step."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import empty, ndarray

from functrans._compile.emit.entry_code import IN_ORDER
from functrans._compile.lowering.library import refused
from functrans._compile.run.entry import entry_of
from functrans._compile.run.frame import Frame, Host, Segment
from functrans._compile.run.guards import Guards
from functrans._compile.run.workers import on_threads
from functrans._compile.schedule.views import Shape
from functrans._core.aval import PYTHON_SCALARS
from functrans._core.locks import lazy
from functrans._kernels import memory, sizes
from functrans.errors import ArgumentError


class Framed:
    """Compiled code in its frame: called with a list of values, returns fresh ndarrays.

    ``code`` must live as long as the functions are called.
    """

    def __init__(self, frame: Frame, functions: dict[str, Any], code: Any):
        self.frame, self.functions, self.code = frame, functions, code
        self._called = False
        # what a call reads, as plain tuples
        self._arguments = [(i, x.shape, x.dtype) for i, x in enumerate(frame.arguments)]
        fixed = frame.fixed
        self._rest = tuple([fixed.get(k) for k in range(len(frame.arguments), frame.slots)])
        self._runs = [(run.makes, self._function(run), run.drops) for run in frame.runs]
        self._results = [(y.slot, y.shape, y.copied) for y in frame.results]

    def sharing(self, others: Sequence[tuple[np.ndarray, int]]) -> Framed:
        """The same code on arrays of others, as a frame shares them; itself where it shares none.

        So memory is read once where whoever calls has just compared these arrays.
        """
        frame = self.frame.sharing(others)
        same = all(map(operator.is_, frame.constants, self.frame.constants))
        return self if same else Framed(frame, self.functions, self.code)

    def _function(self, run: Segment | Host) -> Callable[[list], Any]:
        if isinstance(run, Host):
            return run.run
        function = self.functions[run.name]
        if run.chunks == 1:
            return function
        shared = on_threads(function)
        return lambda slots: shared(slots, run.chunks, run.chunks * sizes.CHUNK)

    @property
    def verified(self) -> Framed:
        return self

    @lazy
    def entry(self) -> Callable | None:
        """The same as a C function of the values, where it can be one.

        It returns read-only Arrays, in a tuple if there are several; or NotImplemented for values
        that it leaves to the call with a list.
        """
        self._keep_memory()
        return entry_of(self, locked=True)

    def guarded(self, guards: Guards) -> Callable | None:
        """The entry, which declines while guards do not hold."""
        self._keep_memory()
        return entry_of(self, locked=True, guards=guards)

    @lazy
    def _direct(self) -> Callable | None:
        """The same, but it returns writeable ndarrays."""
        self._keep_memory()
        return entry_of(self, locked=False)

    def _keep_memory(self) -> None:
        """From the second call on, large arrays take the memory of dropped ones."""
        makes = [make for segment in self.frame.segments for make in segment.makes]
        if any(math.prod(shape) * dtype.itemsize >= sizes.KEPT for _, shape, dtype in makes):
            memory.keep()

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        # the first call, often the only one, does not pay for loading the C function
        if self._called and (direct := self._direct) is not None:
            ys = direct(*values)
            if ys is not NotImplemented:
                return list(ys) if type(ys) is tuple else [ys]
        self._called = True
        return self.in_steps(values)

    def in_steps(self, values: Sequence[Any]) -> list[np.ndarray]:
        """The call step by step in Python, for any program and any values that fit."""
        if len(values) != len(self._arguments):
            raise TypeError(f"the program takes {len(self._arguments)} values, not {len(values)}")
        slots: list[Any] = [*values, *self._rest]
        for i, shape, dtype in self._arguments:
            x = slots[i]
            # _fits, written out: a call of it for each argument costs as much as the test
            if not (type(x) is ndarray and x.dtype is dtype and x.shape == shape
                    and x.flags.num & IN_ORDER == IN_ORDER):
                slots[i] = in_order(x, dtype, shape, i)
        for makes, run, drops in self._runs:
            for slot, shape, dtype in makes:
                slots[slot] = empty(shape, dtype)
            if status := run(slots):
                raise refused(status)
            for slot in drops:
                slots[slot] = None
        outputs = []
        for slot, shape, copied in self._results:
            y = slots[slot]
            outputs.append(np.array(y.reshape(shape), order="C") if copied else y)
        return outputs


def in_order(x: Any, dtype: np.dtype, shape: Shape, i: int) -> np.ndarray:
    """``x`` as the native code can read it: C-contiguous, aligned, in native byte order."""
    weak = type(x) in PYTHON_SCALARS
    try:
        y = np.asarray(x, dtype if weak else None)
    except OverflowError:
        raise ArgumentError(
            f"jit: value {i} is the int {x}, which {dtype} cannot hold. Pass it as a float, or "
            "make it part of the program with static_argnums."
        ) from None
    if y.shape != shape:
        raise ValueError(f"value {i} has shape {y.shape}, but the program was made for {shape}")
    if y.dtype.newbyteorder("=") != dtype:
        raise TypeError(f"value {i} is {y.dtype}, but the program was made for {dtype}")
    if y.dtype == dtype and y.flags.num & IN_ORDER == IN_ORDER:
        return y
    return np.require(y, dtype, ["C", "A"])
