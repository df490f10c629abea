"""Loops over graphs, in the part of Python that numba compiles.

A graph is its adjacency lists: the neighbours of v are ``near[start[v]:start[v + 1]]``. Where numba
is installed and a graph is large the functions are compiled; else they run as they stand, on lists.
"""

from __future__ import annotations

import functools
import heapq
import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

# Steps of a loop from which on compiling it pays.
COMPILED = 10_000_000


def run(kernel: Callable, steps: int, *args: Any) -> Any:
    """A kernel's result; compiled if it takes many ``steps``."""
    if steps >= COMPILED and importlib.util.find_spec("numba") is not None:
        return _compile(kernel)(*args)
    listed = [a.tolist() if isinstance(a, np.ndarray) else a for a in args]
    return kernel(*listed)


@functools.cache
def _compile(kernel: Callable) -> Callable:
    import numba  # lazy: an extra, and slow to import

    return numba.njit(kernel)


def greedy(order, start, near, colors):
    """The least colour that no neighbour has, one vertex after another; how many there are.

    ``colors`` are -1 at first.
    """
    last = [-1 for _ in order]
    last.append(-1)
    most = 0
    for v in order:
        for k in range(start[v], start[v + 1]):
            c = colors[near[k]]
            if c >= 0:
                last[c] = v
        c = 0
        while last[c] == v:
            c += 1
        colors[v] = c
        if c >= most:
            most = c + 1
    return most, colors


def saturation(start, near, degree, limit, colors):
    """The least colour that no neighbour has, first for those whose neighbours have the most, then
    for those with the most neighbours (Brelaz 1979); how many there are, or more than ``limit``.

    ``colors`` are -1 at first.
    """
    n = len(degree)
    seen = [False for _ in range(n * limit)]  # by a vertex, a colour
    count = [0 for _ in range(n)]
    queue = [(0, -degree[v], v) for v in range(n)]
    heapq.heapify(queue)
    most = 0
    while len(queue) > 0:
        fewer, _, v = heapq.heappop(queue)
        if colors[v] >= 0 or -fewer != count[v]:
            continue
        c = 0
        while c < limit and seen[v * limit + c]:
            c += 1
        if c == limit:
            return limit + 1, colors
        colors[v] = c
        if c >= most:
            most = c + 1
        for k in range(start[v], start[v + 1]):
            w = near[k]
            if colors[w] < 0 and not seen[w * limit + c]:
                seen[w * limit + c] = True
                count[w] += 1
                heapq.heappush(queue, (-count[w], -degree[w], w))
    return most, colors


def incidence_order(start, near, rising):
    """An order in which each vertex has the most neighbours before it (Coleman and More 1983).

    Of several with as many, the last in ``rising``.
    """
    n = len(rising)
    # buckets of vertices by neighbours so far, as linked lists; the top has the largest degree
    top = [-1 for _ in range(n + 1)]
    above = [-1 for _ in range(n)]
    below = [-1 for _ in range(n)]
    count = [0 for _ in range(n)]
    placed = [False for _ in range(n)]
    for v in rising:
        below[v] = top[0]
        if top[0] >= 0:
            above[top[0]] = v
        top[0] = v
    order = []
    level = 0
    for _ in range(n):
        while top[level] < 0:
            level -= 1
        v = top[level]
        top[level] = below[v]
        if below[v] >= 0:
            above[below[v]] = -1
        placed[v] = True
        order.append(v)
        for k in range(start[v], start[v + 1]):
            w = near[k]
            if placed[w] or w == v:
                continue
            if above[w] >= 0:
                below[above[w]] = below[w]
            else:
                top[count[w]] = below[w]
            if below[w] >= 0:
                above[below[w]] = above[w]
            count[w] += 1
            above[w] = -1
            below[w] = top[count[w]]
            if top[count[w]] >= 0:
                above[top[count[w]]] = w
            top[count[w]] = w
            if count[w] > level:
                level = count[w]
    return order


def smallest_last(start, near, degree):
    """An order in which each vertex has the fewest neighbours among those before it and itself
    (Matula and Beck, J. ACM 30, 1983)."""
    left = [d for d in degree]
    waiting = [(d, v) for v, d in enumerate(left)]
    heapq.heapify(waiting)
    placed = [False for _ in left]
    order = []
    while len(waiting):
        d, v = heapq.heappop(waiting)
        if placed[v] or d > left[v]:
            continue
        placed[v] = True
        order.append(v)
        for k in range(start[v], start[v + 1]):
            w = near[k]
            if not placed[w]:
                left[w] -= 1
                heapq.heappush(waiting, (left[w], w))
    order.reverse()
    return order


def star(order, start, near, colors, first):
    """Colours from ``first`` on in which each path of four vertices has three; how many there are.

    Gebremedhin, Tarafdar, Manne and Pothen, SIAM J. Sci. Comput. 29 (2007), without their table of
    stars. A vertex ends such a path, or is inside of one that joins two neighbours of one colour.
    ``colors`` are -1 at first; those of other vertices stay.
    """
    last = [-1 for _ in range(first + len(order) + 1)]
    twice = [-1 for _ in range(first + len(order) + 1)]
    most = first
    for v in order:
        for k in range(start[v], start[v + 1]):
            c = colors[near[k]]
            if near[k] != v and c >= 0:
                if last[c] == v:
                    twice[c] = v
                last[c] = v
        for k in range(start[v], start[v + 1]):
            w = near[k]
            c = colors[w]
            if w == v or c < 0:
                continue
            for m in range(start[w], start[w + 1]):
                x = near[m]
                # numba has no `x in (v, w)` of numbers of several types
                if x == v or x == w or colors[x] < 0 or last[colors[x]] == v:  # noqa: SIM109
                    continue
                if twice[c] == v:
                    last[colors[x]] = v
                    continue
                for j in range(start[x], start[x + 1]):
                    y = near[j]
                    if y != w and y != x and colors[y] == c:
                        last[colors[x]] = v
                        break
        c = first
        while last[c] == v:
            c += 1
        colors[v] = c
        if c >= most:
            most = c + 1
    return most, colors


def acyclic(order, start, near, edge, colors, first):
    """Colours from ``first`` on in which each cycle has three; how many there are.

    Gebremedhin, Tarafdar, Manne and Pothen (2007): the edges between two colours are forests, whose
    trees are sets of edges that grow together. ``edge`` numbers the edges in both directions. Not
    compiled, since it calls other functions.
    """
    parent = list(range(len(near) + 1))
    last = [-1] * (first + len(order) + 1)
    by: dict[int, tuple[int, int]] = {}
    most = first
    for v in order:
        around = [k for k in range(start[v], start[v + 1])
                  if near[k] != v and colors[near[k]] >= 0]
        for k in around:
            last[colors[near[k]]] = v
        for k in around:
            w = near[k]
            for m in range(start[w], start[w + 1]):
                x = near[m]
                if x in (v, w) or colors[x] < 0 or last[colors[x]] == v:
                    continue
                tree = root(parent, edge[m])
                if by.setdefault(tree, (v, w))[0] != v:
                    by[tree] = v, w
                elif by[tree][1] != w:  # v would close a cycle in this tree
                    last[colors[x]] = v
        c = first
        while last[c] == v:
            c += 1
        colors[v] = c
        most = max(most, c + 1)
        _grow(v, around, start, near, edge, colors, parent)
    return most, colors


def _grow(v, around, start, near, edge, colors, parent):
    """The edges from v to vertices of one colour, and all that they touch, become one tree."""
    trees: dict[int, int] = {}
    for k in around:
        w = near[k]
        tree = trees.setdefault(colors[w], root(parent, edge[k]))
        parent[root(parent, edge[k])] = root(parent, tree)
        for m in range(start[w], start[w + 1]):
            if colors[near[m]] == colors[v] and near[m] != v:
                parent[root(parent, edge[m])] = root(parent, tree)


def root(parent, k):
    """The edge that stands for the tree of edge ``k``."""
    while parent[k] != k:
        parent[k] = parent[parent[k]]
        k = parent[k]
    return k
