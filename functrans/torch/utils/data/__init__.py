"""``torch.utils.data``: data sets, samplers and batches, read in this process.

>>> from functrans import torch
>>> from functrans.torch.utils.data import DataLoader, TensorDataset
>>> data = TensorDataset(torch.arange(5), torch.zeros(5))
>>> [x for x, _ in DataLoader(data, batch_size=2)]
[tensor([0, 1]), tensor([2, 3]), tensor([4])]
"""

from __future__ import annotations

from functrans.torch.utils.data.loader import (
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)
from functrans.torch.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

__all__ = [
    "BatchSampler", "ChainDataset", "ConcatDataset", "DataLoader", "Dataset", "IterableDataset",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "default_collate",
    "default_convert", "get_worker_info", "random_split",
]
