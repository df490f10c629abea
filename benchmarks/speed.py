"""Time: gradients, second derivatives and Hessians, small and large."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks import functions
from benchmarks.peers import Peer, Thunk
from benchmarks.report import Table, seconds, verdict
from benchmarks.timing import check_equal, interleaved, medians


class Case(NamedTuple):
    """``targets``: peer -> the most that functrans' time may be of the peer's."""

    title: str
    contenders: dict[str, Thunk]
    targets: Mapping[str, float]


def _case(
    title: str,
    peers: Iterable[Peer],
    way: str,
    f: Callable,
    x: Any,
    targets: Mapping[str, float],
) -> Case:
    thunks = {p.name: getattr(p, way)(f, x) for p in peers}
    return Case(title, {name: t for name, t in thunks.items() if t is not None}, targets)


def chain_gradient(peers: list[Peer]) -> Case:
    targets = {"torch": 0.5, "HIPS autograd": 0.2}
    x = functions.point(10)
    title = "Gradient, 100 chained multiply/add on 10 elements"
    return _case(title, peers, "gradient", functions.chain, x, targets)


def chain_second(peers: list[Peer]) -> Case:
    title = "Second derivative, 100 chained multiply/add on 10 elements"
    x = functions.point(10)
    return _case(title, peers, "second", functions.horner, x, {"torch": 0.5})


def rosenbrock_gradient(peers: list[Peer]) -> Case:
    title, x = "Gradient, Rosenbrock function of 10 variables", functions.point(10)
    return _case(title, peers, "gradient", functions.rosenbrock, x, {"torch": 0.6})


def rosenbrock_hessian(peers: list[Peer]) -> Case:
    title, x = "Hessian, Rosenbrock function of 10 variables", functions.point(10)
    return _case(title, peers, "hessian", functions.rosenbrock, x, {"torch": 0.3})


EAGER: tuple[str, ...] = ("torch", "HIPS autograd", "mygrad", "jax eager")


def wave_gradient(peers: list[Peer], n: int) -> Case:
    title = f"Gradient of sum(exp(-x x) sin(3x) + log1p(x x)), {n:,} elements"
    targets: dict[str, float] = dict.fromkeys(EAGER, 1.0) if n >= 1_000_000 else {}
    return _case(title, peers, "gradient", functions.wave, functions.point(n), targets)


def loop_gradient(peers: list[Peer]) -> Case:
    title = "Gradient of a Python loop, 2,000 steps of multiply and add on 10 elements"
    peers = [p for p in peers if "jit" not in p.name and p.name != "jax eager"]
    return _case(title, peers, "gradient", functions.loop(2_000), functions.point(10), {})


CASES: dict[str, Callable[[list[Peer]], Case]] = {
    "chain": chain_gradient,
    "second": chain_second,
    "rosenbrock": rosenbrock_gradient,
    "hessian": rosenbrock_hessian,
    "wave-1e3": lambda peers: wave_gradient(peers, 1_000),
    "wave-1e5": lambda peers: wave_gradient(peers, 100_000),
    "wave-5e6": lambda peers: wave_gradient(peers, 5_000_000),
    "loop": loop_gradient,
}


def run(case: Case, scale: float) -> Table:
    """Check, then time one case."""
    check_equal({name: f() for name, f in case.contenders.items()})
    times = interleaved(case.contenders, scale=scale)
    middle = medians(times)
    ours = middle["functrans"]
    rows = []
    for name, t in middle.items():
        ratio = None if name == "functrans" else ours / t
        target = verdict(ratio, case.targets.get(name))
        rows.append((name, seconds(t), seconds(min(times[name])), ratio, target))
    rounds = len(times["functrans"])
    columns = ("contender", "median", "minimum", "functrans / contender", "target")
    return Table(case.title, columns, rows, (f"{rounds} rounds.",))
