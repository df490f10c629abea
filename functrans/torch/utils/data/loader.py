"""Data sets, and ``DataLoader``: their entries in batches."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from functrans.torch._functions.shapes import stack
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.factories import as_tensor, randperm, tensor
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

# ---- Data sets: what has entries by number, or is gone through once

_T = TypeVar("_T", covariant=True)


class Dataset(Generic[_T]):
    """Base of what has ``dataset[i]``."""

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError("Subclasses of Dataset should implement __getitem__.")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[_T]):
    """Base of what is gone through by ``iter(dataset)``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterableDataset should implement __iter__.")

    def __add__(self, other: Any) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple]):
    """The entries of several tensors along their first dimension."""

    def __init__(self, *tensors: Tensor):
        if any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise AssertionError("Size mismatch between tensors")
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple:
        return tuple([t[index] for t in self.tensors])

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class StackDataset(Dataset[Any]):
    """Several data sets side by side: tuples or dicts of their entries."""

    def __init__(self, *args: Any, **kwargs: Any):
        self.datasets: Any = kwargs or args
        sizes = {len(d) for d in (kwargs.values() if kwargs else args)}
        if len(sizes) != 1:
            raise ValueError("Size mismatch between datasets")

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple([d[index] for d in self.datasets])

    def __len__(self) -> int:
        return len(next(iter(self.datasets.values() if isinstance(self.datasets, dict)
                             else self.datasets)))


class ConcatDataset(Dataset[Any]):
    """One data set after another."""

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets:
            raise AssertionError("datasets should not be an empty iterable")
        self.cumulative_sizes = list(itertools.accumulate([len(d) for d in self.datasets]))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> Any:
        if index < -len(self):
            raise ValueError("absolute value of index should not exceed dataset length")
        index = index % len(self) if index < 0 else index
        k = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[k][index - (self.cumulative_sizes[k - 1] if k else 0)]


class ChainDataset(IterableDataset[Any]):
    """One data set that is gone through after another."""

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.datasets)


class Subset(Dataset[Any]):
    """Some entries of a data set, by their numbers."""

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


def random_split(dataset: Any, lengths: Sequence[float], generator: Any = None) -> list[Subset]:
    """Parts of a data set, of random entries; ``lengths`` are numbers of them, or shares."""
    n = len(dataset)
    sizes = list(lengths)
    if math.isclose(sum(sizes), 1) and sum(sizes) <= 1:
        shares, sizes = sizes, [math.floor(n * share) for share in sizes]
        for i in range(n - sum(sizes)):
            sizes[i % len(shares)] += 1
    if sum(sizes) != n:
        raise ValueError("Sum of input lengths does not equal the length of the input dataset!")
    order = randperm(n, generator=generator).tolist()
    ends = list(itertools.accumulate([int(s) for s in sizes]))
    return [Subset(dataset, order[end - int(size) : end])
            for end, size in zip(ends, sizes, strict=True)]


# ---- ``DataLoader``: the entries of a data set in batches


def default_convert(data: Any) -> Any:
    """``data`` with tensors in place of arrays."""
    if isinstance(data, np.ndarray | np.generic) and data.dtype.kind in "fciub":
        return as_tensor(data)
    if isinstance(data, Mapping):
        return {k: default_convert(v) for k, v in data.items()}
    if isinstance(data, list | tuple):
        items = [default_convert(v) for v in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """Entries as one batch: tensors are stacked, inside lists, tuples and dicts too."""
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch))
    if isinstance(first, np.ndarray | np.generic):
        return as_tensor(np.stack(list(batch)))
    if isinstance(first, float):
        return tensor(batch, dtype=dtypes.float64)
    if isinstance(first, int):
        return tensor(batch)
    if isinstance(first, str | bytes):
        return batch
    if isinstance(first, Mapping):
        return {k: default_collate([entry[k] for entry in batch]) for k in first}
    if isinstance(first, list | tuple):
        if any(len(entry) != len(first) for entry in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        items = [default_collate(list(column)) for column in zip(*batch, strict=True)]
        return type(first)(*items) if hasattr(first, "_fields") else items
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or "
                    f"lists; found {type(first)}")


def get_worker_info() -> None:
    """None: batches are made in this process."""


class DataLoader(Generic[_T]):
    """Goes through the batches of a data set, anew with each ``for``.

    ``num_workers``, ``pin_memory`` and the like are accepted: batches are made in this process.
    """

    def __init__(self, dataset: Any, batch_size: int | None = 1, shuffle: bool | None = None,
                 sampler: Iterable | None = None, batch_sampler: Iterable | None = None,
                 num_workers: int = 0, collate_fn: Callable | None = None,
                 pin_memory: bool = False, drop_last: bool = False, timeout: float = 0,
                 worker_init_fn: Callable | None = None, multiprocessing_context: Any = None,
                 generator: Any = None, *, prefetch_factor: int | None = None,
                 persistent_workers: bool = False, pin_memory_device: str = "",
                 in_order: bool = True):
        self.dataset, self.num_workers, self.drop_last = dataset, num_workers, drop_last
        self.iterable = isinstance(dataset, IterableDataset)
        if self.iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, "
                             "sampler and batch_sampler options")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, "
                                 "shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually "
                             "exclusive with drop_last")
        if sampler is None and not self.iterable:
            sampler = (RandomSampler(dataset, generator=generator) if shuffle
                       else SequentialSampler(dataset))
        if batch_size is not None and batch_sampler is None and not self.iterable:
            assert sampler is not None, "made above"
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.sampler, self.batch_sampler = batch_size, sampler, batch_sampler
        batched = batch_sampler is not None or batch_size is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def _entries(self) -> Iterator[Any]:
        """The batches before they are collated."""
        if not self.iterable:
            numbers: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
            for i in numbers:
                yield self.dataset[i] if self.batch_sampler is None else [
                    self.dataset[j] for j in i]
            return
        yield from self._stream()

    def _stream(self) -> Any:
        """What is gone through, in batches of its entries unless they are to be single."""
        if self.batch_size is None:
            return self.dataset
        return BatchSampler(self.dataset, self.batch_size, self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        for entries in self._entries():
            yield self.collate_fn(entries)

    def __len__(self) -> int:
        if not self.iterable:
            batches: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
            return len(batches)
        return len(self._stream())
