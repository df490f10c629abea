"""What tests send to other processes: a module that is imported fast there."""

import os

import numpy as np

import functrans as ft


def loss(w, X, y):
    return np.sum(np.log1p(np.exp(-y * (X @ w))))


def moments(w, X, y):
    return X.T @ np.tanh(y * (X @ w))


def length(x):
    return np.sqrt(np.sum(x * x))


@ft.external
def external_of_nine(x):
    if x == 9:
        raise ValueError("no nine")
    return x * 1.0


def ends(x):
    os._exit(1)


class OfTwo(Exception):
    """Does not survive pickling: two arguments, and one text."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def raises_of_two(x):
    raise OfTwo("this", "that")
