"""Many workloads, a line each: what is differentiated, how, and at which size.

Eager code is compared with the fastest of the eager peers, compiled code with JAX's; one thread
each with ``--threads 1``. Times are the processor's; times and ratios are medians of the turns.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks.libraries import Library, Thunk, importable
from benchmarks.report import Table, seconds
from benchmarks.timing import as_ndarray, check_equal, interleaved, medians


class Workload(NamedTuple):
    """``build(library, *sizes)`` is the function and its arguments; ``way`` what is taken of it."""

    name: str
    way: str
    build: Callable[..., tuple[Callable, tuple]]
    sizes: tuple[int, ...]
    dtype: str = "float64"

    @property
    def title(self) -> str:
        sizes = " x ".join(f"{n:,}" for n in self.sizes)
        kind = ", float32" if self.dtype == "float32" else ""
        return f"{self.way} of {self.name}, {sizes}{kind}"

    @property
    def slug(self) -> str:
        """The title as one word."""
        return "-".join(re.findall(r"[\w@]+", self.title.replace(",", "")))


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _places(top: int, *shape: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, top, shape)


# ---- entry by entry


def products(lib: Library, n: int):
    def f(x):
        for _ in range(25):
            x = x * 1.01 + 0.01
        return lib.numpy.sum(x * x)

    return f, (np.linspace(0.2, 1.1, n),)


def sines(lib: Library, n: int):
    def f(x):
        for _ in range(5):
            x = lib.numpy.sin(x) * 0.9 + 0.1
        return lib.numpy.sum(x)

    return f, (np.linspace(0.2, 1.1, n),)


def wave(lib: Library, n: int):
    xp = lib.numpy
    return (lambda x: xp.sum(xp.exp(-x * x) * xp.sin(3 * x) + xp.log1p(x * x)),
            (np.linspace(0.2, 1.1, n),))


def sums(lib: Library, n: int):
    def f(x):
        for _ in range(20):
            x = x * (1 / lib.numpy.sum(x))
        return lib.numpy.sum(x * x)

    return f, (np.linspace(0.2, 1.1, n),)


def matrix_vector(lib: Library, n: int):
    a = lib.own(_random(n, n) / n)

    def f(x):
        for _ in range(20):
            x = a @ x
        return x @ x

    return f, (np.linspace(0.2, 1.1, n),)


def entries(lib: Library, n: int):
    def f(x):
        return sum((x[i] * x[i + 1] for i in range(20)), start=x[n - 1])

    return f, (np.linspace(0.2, 1.1, n),)


def _of_one(op: Callable[[Library, Any], Any]) -> Callable:
    """The weighted sum of squares of an op's result."""

    def build(lib: Library, n: int):
        x = np.linspace(0.2, 1.1, n)
        w = lib.own(_random(*as_ndarray(op(lib, lib.own(x))).shape))
        return lambda x: lib.numpy.sum(w * op(lib, x) ** 2), (x,)

    return build


def _convolution(taps: int) -> Callable:
    def op(lib, x):
        return lib.convolve(x, lib.own(_random(taps, seed=1)))

    return _of_one(op)


def updates(lib: Library, n: int):
    """A dozen sums into the end of an array."""
    xp = lib.numpy

    def f(x):
        y = x
        for k in range(1, 13):
            y = lib.add_from(y, k, xp.where(x[k:] > 0.5, x[:-k] * 0.1, x[k:] * x[:-k]))
        return xp.sum(y * y)

    return f, (np.linspace(0.2, 1.1, n),)


def rosenbrock(lib: Library, n: int):
    xp = lib.numpy
    return (lambda x: xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2),
            (np.linspace(0.2, 1.1, n),))


def many_rosenbrocks(lib: Library, count: int, n: int):
    f, _ = rosenbrock(lib, n)
    return f, (np.random.default_rng(1).uniform(-1, 1, (count, n)),)


def tridiagonal(lib: Library, n: int):
    """The residuals of Broyden's tridiagonal system."""
    xp = lib.numpy
    zero = lib.own(np.zeros(1))

    def f(x):
        left, right = xp.concatenate([zero, x[:-1]]), xp.concatenate([x[1:], zero])
        return (3.0 - 2.0 * x) * x - left - 2.0 * right + 1.0

    return f, (np.linspace(0.2, 1.1, n),)


# ---- statistics and learning


def cross_entropy(lib: Library, rows: int, classes: int):
    labels = lib.own(_places(classes, rows))
    return lambda x: lib.cross_entropy(x, labels), (_random(rows, classes),)


def cross_entropy_by_hand(lib: Library, rows: int, classes: int):
    xp = lib.numpy
    labels = lib.own(np.eye(classes)[_places(classes, rows)])

    def f(x):
        return xp.mean(xp.log(xp.sum(xp.exp(x), axis=1)) - xp.sum(labels * x, axis=1))

    return f, (_random(rows, classes),)


def softmax_regression(lib: Library, rows: int, inputs: int, classes: int):
    table, labels = lib.own(_random(rows, inputs)), lib.own(_places(classes, rows))
    return (lambda w, b: lib.cross_entropy(table @ w + b, labels),
            (0.1 * _random(inputs, classes, seed=1), np.zeros(classes)))


def logistic(lib: Library, rows: int, n: int):
    table, sign = lib.own(_random(rows, n)), lib.own(np.sign(_random(rows, seed=1)))
    return (lambda w: lib.numpy.mean(lib.softplus(-sign * (table @ w))),
            (0.1 * _random(n, seed=3),))


def network(lib: Library, inputs: int, hidden: int, outputs: int, batch: int):
    images, labels = lib.own(_random(batch, inputs)), lib.own(_places(outputs, batch))

    def f(w1, b1, w2, b2):
        return lib.cross_entropy(lib.numpy.tanh(images @ w1 + b1) @ w2 + b2, labels)

    return f, (_random(inputs, hidden) / inputs**0.5, np.zeros(hidden),
               _random(hidden, outputs) / hidden**0.5, np.zeros(outputs))


def mixture(lib: Library, count: int, d: int, k: int):
    """Gaussians with full covariances, by the factors of their inverses."""
    xp = lib.numpy
    points, below = lib.own(_random(count, d)), lib.own(np.tril(np.ones((d, d)), -1))
    one = lib.own(np.eye(d))

    def f(weights, means, logs, factors):
        factor = factors * below + xp.exp(logs)[:, None, :] * one
        away = points[None] - means[:, None]
        z = away @ xp.swapaxes(factor, 1, 2)
        inner = (weights + xp.sum(logs, axis=1))[:, None] - 0.5 * xp.sum(z * z, axis=2)
        return xp.sum(lib.logsumexp(inner, 0)) - count * lib.logsumexp(weights, 0)

    return f, (_random(k), _random(k, d, seed=1), 0.1 * _random(k, d, seed=3),
               0.1 * _random(k, d, d, seed=4))


def process(lib: Library, n: int):
    """The negative log marginal likelihood of a Gaussian process."""
    xp = lib.numpy
    places, heights = np.sort(np.random.default_rng(0).uniform(0, 10, n)), lib.own(_random(n))
    squares, one = lib.own((places[:, None] - places) ** 2), lib.own(np.eye(n))

    def f(p):
        scale, size, noise = xp.exp(p[0]), xp.exp(p[1]), xp.exp(p[2])
        k = size * xp.exp(-0.5 * squares / scale**2) + noise * one
        factor = xp.linalg.cholesky(k)
        fit = xp.linalg.solve(k, heights)
        return 0.5 * xp.sum(heights * fit) + xp.sum(xp.log(xp.diagonal(factor)))

    return f, (np.array([0.1, 0.2, -1.0]),)


# ---- mechanics and geometry


def bodies(lib: Library, n: int):
    """Their potential energy, softened."""
    xp = lib.numpy
    masses = lib.own(np.linspace(1.0, 2.0, n))

    def f(x):
        away = x[:, None, :] - x[None, :, :]
        inverse = 1.0 / xp.sqrt(xp.sum(away * away, axis=2) + 0.01)
        return -0.5 * xp.sum(masses[:, None] * masses * inverse)

    return f, (_random(n, 3),)


def _cross(xp: Any, a: Any, b: Any) -> Any:
    """Of vectors in the last axis."""
    return xp.stack([a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1],
                     a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2],
                     a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]], -1)


def _projected(xp: Any, camera: Any, point: Any) -> Any:
    """Where cameras see points: rotation, centre, focal length, middle, distortion."""
    r, away = camera[..., :3], point - camera[..., 3:6]
    square = xp.sum(r * r, -1)[..., None] + 1e-12
    angle = xp.sqrt(square)
    axis = r / angle
    turned = (away * xp.cos(angle) + _cross(xp, axis, away) * xp.sin(angle)
              + axis * (xp.sum(axis * away, -1)[..., None] * (1.0 - xp.cos(angle))))
    flat = turned[..., :2] / turned[..., 2:3]
    radius = xp.sum(flat * flat, -1)[..., None]
    bent = flat * (1.0 + radius * (camera[..., 9:10] + radius * camera[..., 10:11]))
    return bent * camera[..., 6:7] + camera[..., 7:9]


def _scene(cameras: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    camera = 0.1 * _random(cameras, 11)
    camera[:, 6] += 1.0
    return camera, _random(points, 3) + np.array([0.0, 0.0, 5.0])


def seen_by(cameras: int, points: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which camera sees which point."""
    return _places(cameras, count), _places(points, count, seed=3)


def residuals(lib: Library, cameras: int, points: int, count: int):
    """Where points are seen, and where they ought to be."""
    xp = lib.numpy
    who, what = map(lib.own, seen_by(cameras, points, count))
    seen = lib.own(_random(count, 2))

    def f(camera, point):
        return _projected(xp, camera[who], point[what]) - seen

    return f, _scene(cameras, points)


def bundle(lib: Library, cameras: int, points: int, count: int):
    """Half the sum of squared residuals."""
    gaps, arguments = residuals(lib, cameras, points, count)

    def f(camera, point):
        gap = gaps(camera, point)
        return 0.5 * lib.numpy.sum(gap * gap)

    return f, arguments


def bundle_blocks(lib: Library, count: int):
    """Two residuals of 15 numbers (a camera, a point and a weight) for each observation."""
    xp = lib.numpy
    camera, point = _scene(count, count)

    def f(p):
        return p[14] * _projected(xp, p[:11], p[11:14])

    return f, (np.concatenate([camera, point, np.ones((count, 1))], 1),)


def skin(lib: Library, points: int, bones: int):
    """Points that follow four bones each, whose turns (of three numbers) are the argument."""
    xp = lib.numpy
    base, which = lib.own(_random(points, 4)), lib.own(_places(bones, points, 4))
    weights = lib.own(np.random.default_rng(5).dirichlet(np.ones(4), points))

    def f(turns):
        s, c = xp.sin(turns), xp.cos(turns)
        zero, one = xp.zeros_like(s[:, 0]), xp.ones_like(s[:, 0])

        def matrix(*rows):
            return xp.stack([xp.stack(row, -1) for row in rows], -2)

        x = matrix([one, zero, zero, zero], [zero, c[:, 0], -s[:, 0], zero],
                   [zero, s[:, 0], c[:, 0], zero], [zero, zero, zero, one])
        y = matrix([c[:, 1], zero, s[:, 1], zero], [zero, one, zero, zero],
                   [-s[:, 1], zero, c[:, 1], zero], [zero, zero, zero, one])
        z = matrix([c[:, 2], -s[:, 2], zero, zero], [s[:, 2], c[:, 2], zero, zero],
                   [zero, zero, one, zero], [zero, zero, zero, one])
        moved = (z @ y @ x)[which] @ base[:, None, :, None]
        return xp.sum(weights[..., None] * moved[..., :3, 0], 1).reshape(-1)

    return f, (0.3 * _random(bones, 3),)


def _sized(name: str, way: str, build: Callable, *sizes: Any, **more: Any) -> list[Workload]:
    return [Workload(name, way, build, s if isinstance(s, tuple) else (s,), **more) for s in sizes]


def _both_precisions(*args: Any, **more: Any) -> list[Workload]:
    return [*_sized(*args, **more), *_sized(*args, dtype="float32", **more)]


WORKLOADS: tuple[Workload, ...] = (
    *_sized("a chain of products", "value", products, 10),
    *_sized("a chain of products", "gradient", products, 1, 10, 100, 1000, 100_000),
    *_sized("a chain of products", "second", products, 10),
    *_sized("a chain of sines", "gradient", sines, 10),
    *_both_precisions("a chain of sines", "gradient", sines, 1000, 100_000),
    *_both_precisions("a sum of waves", "gradient", wave, 1000, 100_000, 1_000_000),
    *_sized("a chain of sums", "gradient", sums, 10, 1000),
    *_sized("a chain of products A @ x", "gradient", matrix_vector, 3, 30, 300),
    *_sized("products of neighbouring entries", "gradient", entries, 30),
    *_sized("Rosenbrock's function", "gradient", rosenbrock, 10, 1000, 100_000),
    *_sized("Rosenbrock's function", "second", rosenbrock, 10),
    *_sized("Rosenbrock's function", "hessian", rosenbrock, 10, 100, 1000),
    *_sized("Rosenbrock functions", "gradients", many_rosenbrocks, (10_000, 10)),
    *_sized("a tridiagonal system", "jacobian", tridiagonal, 100, 2000),
    *[Workload(f"np.{name}", "gradient", _of_one(op), (n,))
      for n in (100, 10_000) for name, op in (
          ("std", lambda lib, x: lib.std(x)), ("repeat", lambda lib, x: lib.repeat(x, 3)),
          ("roll", lambda lib, x: lib.numpy.roll(x, 3)))],
    *_sized("np.convolve with 11 taps", "gradient", _convolution(11), 1000, 100_000),
    *_sized("np.convolve with 61 taps", "gradient", _convolution(61), 1000, 100_000),
    *_sized("a dozen updates of slices", "gradient", updates, 100, 10_000),
    *_both_precisions("softmax cross-entropy", "gradient", cross_entropy, (64, 10), (512, 100)),
    *_both_precisions("softmax cross-entropy by hand", "gradient", cross_entropy_by_hand,
                      (512, 100)),
    *_sized("softmax regression", "gradient", softmax_regression, (512, 50, 100)),
    *_both_precisions("logistic regression", "gradient", logistic, (1000, 20), (10_000, 100)),
    *_sized("logistic regression", "hessian", logistic, (1000, 20), (10_000, 100)),
    *_both_precisions("a network", "gradient", network, (10, 20, 3, 32), (784, 128, 10, 128)),
    *_sized("a Gaussian mixture", "gradient", mixture, (1000, 2, 5), (1000, 10, 25),
            (1000, 32, 50)),
    *_sized("a Gaussian process", "gradient", process, 50, 200),
    *_sized("the energy of bodies", "gradient", bodies, 64),
    *_sized("bundle adjustment", "gradient", bundle, (49, 7776, 31_843)),
    *_sized("bundle adjustment's residuals", "jacobians", bundle_blocks, 31_843),
    *_sized("a skinned mesh", "forward", skin, (6400, 22)),
)


def table(workloads: Iterable[Workload] = WORKLOADS, scale: float = 1.0) -> Table:
    """A line for each workload, and the geometric means of the ratios."""
    groups = [[cls.name for cls in importable() if cls.compiled is c] for c in (False, True)]
    rows = [_row(w, groups, scale) for w in workloads]
    columns: list[str] = ["workload"]
    means: list[Any] = ["geometric mean"]
    for group in groups:
        columns += [*group, "ratio"]
        ratios = [row[len(columns) - 1] for row in rows if row[len(columns) - 1] is not None]
        means += [None] * len(group) + [statistics.geometric_mean(ratios) if ratios else None]
    return Table("Workloads", columns, [*rows, means], (
        "A ratio is functrans' time over that of the fastest peer in the columns before it.",))


def _row(w: Workload, groups: list[list[str]], scale: float) -> list[Any]:
    """Check, then time: the seconds of each library and, after each group, the ratio."""
    calls = _calls(w)
    close = (1e-3, 1e-4) if w.dtype == "float32" else (1e-6, 1e-8)
    check_equal({name: _flat(f()) for name, f in calls.items()}, *close)
    times = interleaved(calls, scale=0.2 * scale, clock=process_time)
    middle = medians(times)
    row: list[Any] = [w.title]
    for group in groups:
        row += [seconds(middle[name]) if name in times else None for name in group]
        row.append(_ratio(times, [name for name in group if name in times]))
    print(*row, sep=" | ", file=sys.stderr, flush=True)
    return row


def call(lib: Library, w: Workload) -> Thunk:
    """The call that is timed."""
    f, args = w.build(lib, *w.sizes)
    return getattr(lib, w.way)(f, tuple(map(lib.own, args)))


def _calls(w: Workload) -> dict[str, Thunk]:
    """Those of the libraries that are installed and have what it needs."""
    calls = {}
    for cls in importable():
        with suppress(NotImplementedError):
            f = call(cls(w.dtype), w)
            f()
            calls[cls.name] = f
    return calls


def _ratio(times: dict[str, list[float]], group: list[str]) -> float | None:
    """Ours over the best of the others', the first of the group being ours."""
    if len(group) < 2 or not group[0].startswith("functrans"):
        return None
    ours, *theirs = (times[name] for name in group)
    return max(statistics.median(a / b for a, b in zip(ours, other, strict=True))
               for other in theirs)


def _flat(y: Any) -> np.ndarray:
    leaves = y if isinstance(y, list | tuple) else [y]
    return np.concatenate([np.ravel(as_ndarray(leaf)) for leaf in leaves])
