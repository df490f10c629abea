"""Directions shared out to the workers of an executor, which run the function for themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from functrans import tree
from functrans._core.aval import integer
from functrans._transforms.matrices.batches import Batches
from functrans._transforms.matrices.directions import Ways
from functrans._transforms.sharding.executors import Chunk, require_values, run
from functrans.errors import name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor


class SharedBatches(Batches):
    """Batches of ``chunk_size`` directions on an executor.

    ``work(args, kwargs, start, stop)`` returns the images of some directions, in another process if
    need be; ``call`` are the arguments.
    """

    def __init__(self, batches: Batches, executor: Executor, work: Callable, call: tuple):
        self.__dict__.update(batches.__dict__)
        self.executor, self.work, self.call = executor, work, call

    def each(self, ways: Ways, width: int, values: Sequence, image: Callable,
             take: Callable[[int, int, list], None], whole: bool = True) -> None:
        """Batch after batch, ``take`` is given where it starts, its size and its images."""
        total, size = ways.total, integer(self.chunk_size)
        assert size is not None, self.chunk_size
        if total == 0:
            super().each(ways, width, values, image, take, whole)
            return
        require_values(self.who, self.f, "an argument", tree.leaves(self.call))
        if self.tape is None:  # one direction shows what the function returns
            image([e[0] for e in ways.rows(0, 1)])

        def cut() -> Iterator[Chunk]:
            for start in range(0, total, size):
                stop = min(start + size, total)
                name = f"chunk {start // size} (directions {start} to {stop - 1} of {total})"
                yield Chunk(name, (*self.call, start, stop))

        with self._bar(total) as bar:
            parts = run(self.who, self.work, cut(), self.executor, name_of(self.f))
            for i, images in enumerate(parts):
                require_values(self.who, self.f, "the output", images)
                count = min(size, total - i * size)
                take(i * size, count, images)
                bar.update(count)
