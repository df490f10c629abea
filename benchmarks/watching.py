"""What it costs to look at a gradient while it is computed: the profiler, anomaly mode, the doctor.

100 chained multiplications and additions on 10 elements, and their gradient.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import functrans as ft
from benchmarks.report import Table
from benchmarks.timing import check_equal, interleaved, medians
from functrans import torch
from functrans.debug import detect_anomaly, explain
from functrans.profile import profile

X = np.linspace(0.5, 1.5, 10)


def chain(x: Any) -> Any:
    for _ in range(50):
        x = x * 1.01 + 0.1
    return x.sum()


def of_tensors() -> np.ndarray:
    x = torch.tensor(X, requires_grad=True)
    chain(x).backward()
    return x.grad.numpy()  # type: ignore[union-attr]  # it has been filled in


def inside(context: Callable, f: Callable) -> Callable:
    def run() -> Any:
        with context():
            return f()

    return run


def table(scale: float) -> Table:
    gradient = ft.grad(chain)
    autograd = torch.autograd
    anomaly: Any = lambda: autograd.set_detect_anomaly(True)  # noqa: E731  # a name for the row
    runs: dict[str, Callable] = {
        "functions": lambda: gradient(X),
        "functions, profile": inside(profile, lambda: gradient(X)),
        "functions, detect_anomaly": inside(detect_anomaly, lambda: gradient(X)),
        "functions, explain": lambda: explain(chain)(X).inputs[0].gradient,
        "tensors": of_tensors,
        "tensors, profile": inside(autograd.profiler.profile, of_tensors),
        "tensors, detect_anomaly": inside(anomaly, of_tensors),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_equal({name: f() for name, f in runs.items()})
        times = medians(interleaved(runs, scale=scale))
    rows = [(name, round(t * 1e6, 1), round(t / times[name.split(",")[0]], 2))
            for name, t in times.items()]
    return Table("Looking at a gradient of 100 operations while it is computed",
                 ("what runs", "microseconds", "times as long"), rows)
