"""``functrans.autograd`` against autograd: the same function of either, in turns, in one process.

``python -m benchmarks.drop_in`` prints the table of docs/howto/autograd.md.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.timing import check_equal, interleaved

Build = Callable[[Any], Callable[[], Any]]
X = np.linspace(0.1, 1.0, 10)
ROUNDS = 15


def _f(anp: Any) -> Callable[[Any], Any]:
    return lambda x: anp.sum(anp.sin(x) * x**2)


def _of(operator: str, x: Any, *rest: Any) -> Build:
    def build(library: Any) -> Callable[[], Any]:
        derivative = getattr(library, operator)(_f(library.numpy))
        return lambda: derivative(x, *rest)

    return build


def _new_closure(library: Any) -> Callable[[], Any]:
    anp = library.numpy
    return lambda: library.grad(lambda x: anp.sum(anp.sin(x) * x**2))(X)


def _with_primitive(library: Any) -> Callable[[Any], Any]:
    extend = importlib.import_module(f"{library.__name__}.extend")

    @extend.primitive
    def square(x: Any) -> Any:
        return x * x

    extend.defvjp(square, lambda ans, x: lambda g: 2.0 * g * x)
    return library.grad(lambda x: library.numpy.sum(square(x)))


def _primitive(library: Any) -> Callable[[], Any]:
    gradient = _with_primitive(library)
    return lambda: gradient(X)


def _new_primitive(library: Any) -> Callable[[], Any]:
    return lambda: _with_primitive(library)(X)


def _network(library: Any) -> Callable[[], Any]:
    anp, draw = library.numpy, np.random.default_rng(0).normal
    params = {"w": draw(size=(10, 20)), "v": draw(size=20), "b": np.zeros(20)}
    inputs = draw(size=(30, 10))

    def loss(p: Any) -> Any:
        return anp.sum(anp.dot(anp.tanh(anp.dot(inputs, p["w"]) + p["b"]), p["v"]) ** 2)

    gradient = library.grad(loss)
    return lambda: gradient(params)["w"]


def _likelihood(library: Any) -> Callable[[], Any]:
    """Negative log-likelihood of a Weibull distribution, as survival packages fit it."""
    anp = library.numpy
    times = np.linspace(0.2, 3.0, 200)

    def loss(p: Any) -> Any:
        z = (times / anp.exp(p[0])) ** anp.exp(p[1])
        return -anp.sum(p[1] + anp.log(z) - anp.log(times) - z)

    hessian = library.hessian(loss)
    return lambda: hessian(np.array([0.1, 0.2]))


CASES: dict[str, Build] = {
    "`grad` of a kept function, 10 numbers": _of("grad", X),
    "`grad(lambda x: ...)(x)`, a new one each time": _new_closure,
    "`value_and_grad`, 10,000 numbers": _of("value_and_grad", np.linspace(0.1, 1.0, 10_000)),
    "`jacobian(jacobian(f))`, 10 numbers": _of("hessian", X),
    "`hessian_vector_product`, 10 numbers": _of("hessian_vector_product", X, X),
    "gradient through a `primitive`": _primitive,
    "the same, with `primitive` and `defvjp` each time": _new_primitive,
    "`grad` of a network, parameters in a dict": _network,
    "`hessian` of a Weibull likelihood, 2 parameters": _likelihood,
}


def main() -> None:
    """Print the table: microseconds of both, the least of all rounds, and the ratio."""
    libraries = {name: importlib.import_module(name) for name in ("autograd", "functrans.autograd")}
    for library in libraries:
        importlib.import_module(f"{library}.numpy")
    print("| case | autograd | functrans.autograd | ratio |\n|---|---:|---:|---:|")
    for case, build in CASES.items():
        contenders = {name: build(library) for name, library in libraries.items()}
        check_equal({name: _first(f()) for name, f in contenders.items()})
        times = interleaved(contenders, rounds=ROUNDS)
        theirs, ours = (min(times[name]) * 1e6 for name in libraries)
        print(f"| {case} | {theirs:.0f} | {ours:.0f} | {ours / theirs:.2f} |")


def _first(y: Any) -> Any:
    return y[1] if isinstance(y, tuple) else y


if __name__ == "__main__":
    main()
