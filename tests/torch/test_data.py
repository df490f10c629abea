"""Data sets and loaders, which are as torch's where nothing is random."""

import numpy as np
import pytest

from functrans import torch
from functrans.torch.utils import data
from functrans.torch.utils.data import DataLoader, TensorDataset

X, Y = torch.arange(10).reshape(5, 2), torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0])


class Squares(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return {"x": np.float32(i * i), "name": str(i), "pair": (i, float(i))}


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(5))


def test_batches_are_stacked_in_order():
    loader = DataLoader(TensorDataset(X, Y), batch_size=2)
    assert len(loader) == 3
    assert [y.tolist() for _, y in loader] == [[0, 1], [2, 3], [4]]
    assert [x.shape for x, _ in DataLoader(TensorDataset(X, Y), 2, drop_last=True)] == [(2, 2)] * 2


def test_a_shuffled_loader_reads_every_entry_once_in_an_order_of_its_generator():
    orders = []
    for _ in range(2):
        g = torch.Generator().manual_seed(3)
        loader = DataLoader(TensorDataset(Y), batch_size=2, shuffle=True, generator=g)
        orders.append([v for (y,) in loader for v in y.tolist()])
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == Y.tolist()


def test_entries_of_all_kinds_are_collated():
    (batch,) = DataLoader(Squares(), batch_size=4)
    assert batch["x"].tolist() == [0, 1, 4, 9]
    assert batch["x"].dtype is torch.float32
    assert batch["name"] == ["0", "1", "2", "3"]
    assert [t.dtype for t in batch["pair"]] == [torch.int64, torch.float64]


def test_single_entries_and_streams_are_read():
    assert [int(x) for x in DataLoader(Stream(), batch_size=None)] == [0, 1, 2, 3, 4]
    assert [b.tolist() for b in DataLoader(Stream(), 2)] == [[0, 1], [2, 3], [4]]
    assert len(list(DataLoader(Stream(), 2, drop_last=True))) == 2
    assert [type(x) for x in DataLoader([np.ones(1)], batch_size=None)] == [torch.Tensor]


def test_data_sets_are_put_together_and_apart():
    both = TensorDataset(Y) + TensorDataset(2 * Y)
    assert (len(both), both[7][0].item(), both[-1][0].item()) == (10, 4.0, 8.0)
    assert data.StackDataset(Y, X)[2][0].item() == 2.0
    parts = data.random_split(TensorDataset(Y), [0.5, 0.5], torch.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [3, 2]
    assert sorted(y.item() for p in parts for (y,) in p) == Y.tolist()
    assert list(data.ChainDataset([Stream(), Stream()]))[4:6] == [4, 0]


def test_samplers_draw():
    g = torch.Generator().manual_seed(1)
    assert list(data.WeightedRandomSampler([0.0, 1.0], 3, generator=g)) == [1, 1, 1]
    assert sorted(data.SubsetRandomSampler([4, 7], g)) == [4, 7]
    assert len(list(data.RandomSampler(Y, num_samples=7, generator=g))) == 7
    assert set(data.RandomSampler(Y, replacement=True, generator=g)) <= set(range(5))
    loader = DataLoader(Y, batch_sampler=data.BatchSampler([3, 1, 2], 2, False))
    assert [b.tolist() for b in loader] == [[3, 1], [2]]


@pytest.mark.parametrize(("call", "text"), [
    (lambda: TensorDataset(X, Y[:2]), "Size mismatch between tensors"),
    (lambda: data.StackDataset(X, Y[:2]), "Size mismatch between datasets"),
    (lambda: data.ConcatDataset([]), "datasets should not be an empty iterable"),
    (lambda: data.ConcatDataset([Y])[-9], "absolute value of index should not exceed"),
    (lambda: data.random_split(Y, [1, 2]), "Sum of input lengths does not equal"),
    (lambda: data.RandomSampler(Y, num_samples=0), "num_samples should be a positive integer"),
    (lambda: data.BatchSampler(Y, 0, False), "batch_size should be a positive integer"),
    (lambda: DataLoader(Stream(), shuffle=True), "expected unspecified shuffle"),
    (lambda: DataLoader(Y, shuffle=True, sampler=[1]), "sampler option is mutually exclusive"),
    (lambda: DataLoader(Y, 2, batch_sampler=[[1]]), "batch_sampler option is mutually exclusive"),
    (lambda: DataLoader(Y, None, drop_last=True), "batch_size=None option disables"),
    (lambda: data.default_collate([object()]), "default_collate: batch must contain tensors"),
    (lambda: data.default_collate([[1], [1, 2]]), "each element in list of batch should be"),
    (lambda: data.Dataset()[0], "should implement __getitem__"),
    (lambda: iter(data.IterableDataset()), "should implement __iter__"),
])
def test_what_does_not_fit_is_refused_as_in_torch(call, text):
    with pytest.raises((AssertionError, ValueError, RuntimeError, TypeError, NotImplementedError),
                       match=text):
        call()
