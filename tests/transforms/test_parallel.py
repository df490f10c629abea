"""Chunks on executors, sums over shards, runs from many starts."""

import multiprocessing
import pickle
import sys
import threading
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans import errors
from functrans._transforms.sharding import executors
from functrans._transforms.sharding.executors import pack, unpack
from functrans._transforms.sharding.shards import FAN_IN, Part, Sums, Tree
from functrans.parallel import multistart
from tests.losses import ends, external_of_nine, length, loss, moments, raises_of_two

X = np.sin(np.arange(69.0) ** 2).reshape(23, 3)
Y, W = np.sign(np.cos(np.arange(23) * 1.7)), np.array([0.3, -1.2, 0.7])


class Inline(Executor):
    """Calls what it is given at once, as another process would: on copies by pickle."""

    _max_workers = 1

    def __init__(self):
        self.futures = []

    def submit(self, f, *args):
        future = Future()
        self.futures.append(future)
        self.start(future, *pickle.loads(pickle.dumps((f, args))))
        return future

    def start(self, future, f, args):
        try:
            future.set_result(f(*args))
        except Exception as error:
            future.set_exception(error)


class Stuck(Inline):
    """Ends its first call with ``error`` and starts no other."""

    _max_workers = 4

    def __init__(self, error):
        super().__init__()
        self.error = error

    def start(self, future, f, args):
        if len(self.futures) == 1:
            future.set_exception(self.error)


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        yield executor


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture
def executor(request):
    return request.getfixturevalue(request.param) if request.param != "inline" else Inline()


everywhere = pytest.mark.parametrize("executor", ["threads", "inline", "processes"], indirect=True)


# ---- batches


@everywhere
def test_a_batch_on_an_executor_is_the_batch_to_the_last_bit(executor):
    slopes = ft.vmap(ft.grad(length), chunk_size=4, executor=executor)(X)
    assert_array_equal(slopes, ft.vmap(ft.grad(length), chunk_size=4)(X))
    assert type(slopes) is ft.Array


def test_functions_without_a_global_name_are_sent_too(processes):
    y = ft.vmap(lambda x, k: {"y": k * x}, (1, None), 1, chunk_size=2, executor=processes)(X, 2.0)
    assert_array_equal(y["y"], 2 * X)


def test_a_batch_of_none_is_empty_on_an_executor_too(threads):
    y = ft.vmap(np.sin, chunk_size=2, executor=threads)(np.zeros((0, 3)))
    assert y.shape == (0, 3)


def test_settings_of_a_block_hold_on_the_workers(threads):
    slope = ft.vmap(ft.grad(np.abs), chunk_size=2, executor=threads)
    with ft.config(kinks="raise"), pytest.raises(errors.NotDifferentiable):
        slope(np.zeros(2))
    assert_array_equal(slope(np.zeros(2)), [0.0, 0.0])


def test_a_function_is_loaded_once_by_each_process():
    staged = []

    def f(x):
        threading.current_thread().staged.append(1)
        return np.sin(x) * 2

    threading.current_thread().staged = staged
    try:
        y = ft.vmap(ft.jit(f), chunk_size=2, executor=Inline())(X[:8])
    finally:
        del threading.current_thread().staged
    assert_allclose(y, 2 * np.sin(X[:8]))
    assert len(staged) == 1


# ---- errors


def test_an_executor_needs_a_size_of_chunks(threads):
    with pytest.raises(errors.ArgumentError, match="vmap: executor needs a chunk_size, the number"):
        ft.vmap(np.sin, executor=threads)


@pytest.mark.parametrize("other, text", [
    (3, "must be None or a concurrent.futures.Executor, but is int 3$"),
    (SimpleNamespace(get_executor=print), r"pass the executor of a dask Client, client.get_exec"),
], ids=["a number", "a client"])
def test_what_is_no_executor_is_refused(other, text):
    with pytest.raises(errors.ArgumentError, match=text):
        ft.vmap(np.sin, chunk_size=2, executor=other)


@everywhere
def test_what_a_chunk_raises_names_it(executor):
    f = ft.vmap(external_of_nine, chunk_size=4, executor=executor)
    with pytest.raises(ValueError, match="no nine") as caught:
        f(np.arange(20.0))
    note = "raised in chunk 2 (slices 8 to 11 of 20) of `external(external_of_nine)`"
    assert any(note in text for text in caught.value.__notes__)


def test_work_that_has_not_begun_is_cancelled_after_an_error():
    executor = Stuck(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        ft.vmap(np.sin, chunk_size=1, executor=executor)(np.zeros(20))
    assert [f.cancelled() for f in executor.futures] == [False] + [True] * 7


def test_few_chunks_are_in_flight():
    executor = Inline()
    with pytest.raises(TypeError, match="wrong"):
        ft.vmap(raises, chunk_size=1, executor=executor)(np.zeros(20))
    assert len(executor.futures) == 2


def raises(x):
    raise TypeError("wrong")


@pytest.mark.parametrize("text", ["chunk 0", "slices 0 to 0 of 2"])
def test_what_the_executor_raises_names_the_chunk_too(text):
    with pytest.raises(pickle.PicklingError, match="of a result") as caught:
        ft.vmap(np.sin, chunk_size=1, executor=Stuck(pickle.PicklingError("of a result")))(W[:2])
    assert "of `sin` was not computed" in caught.value.__notes__[0]
    assert text in caught.value.__notes__[0]


def test_an_executor_that_dies_is_an_error():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor, pytest.raises(
        errors.ExecutorError,
        match=r"vmap: the ProcessPoolExecutor failed before chunk .* of `ends` was computed; a "
        r"worker ended abruptly: .* No partial result is returned",
    ):
        ft.vmap(ends, chunk_size=1, executor=executor)(W)


def test_an_executor_that_is_shut_down_is_an_error():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(errors.ExecutorError, match=r"it takes no more work .*after shutdown"):
        ft.vmap(np.sin, chunk_size=1, executor=executor)(W)


class Cancelling(Inline):
    def start(self, future, f, args):
        future.cancel()
        future.set_running_or_notify_cancel()


class OfCluster(Stuck):
    """The executor of a dask client that loses its cluster at the first call."""

    def __init__(self):
        super().__init__(None)
        self._client = SimpleNamespace(status="running")

    def start(self, future, f, args):
        self._client.status = "connecting"


def test_an_executor_that_loses_its_cluster_does_not_hang(monkeypatch):
    monkeypatch.setattr(executors, "PATIENCE", 0.01)
    executor = OfCluster()
    with pytest.raises(errors.ExecutorError, match="client has lost its cluster"):
        ft.vmap(np.sin, chunk_size=3, executor=executor)(W)
    with pytest.raises(errors.ExecutorError, match=r"takes no more work .*there is no cluster"):
        ft.vmap(np.sin, chunk_size=3, executor=executor)(W)


def test_work_that_others_cancel_is_an_error():
    with pytest.raises(errors.ExecutorError, match="the work was cancelled: the executor was shut"):
        ft.vmap(np.sin, chunk_size=1, executor=Cancelling())(W)


def test_an_exception_that_does_not_pickle_arrives_as_text(processes):
    with pytest.raises(RuntimeError, match=r"^OfTwo: this and that \(chunk 0 \(slices 0 to 1 of"):
        ft.vmap(raises_of_two, chunk_size=2, executor=processes)(W)
    assert_array_equal(ft.vmap(np.sin, chunk_size=2, executor=processes)(W), np.sin(W))


LOCK = threading.Lock()


class Locked:
    def __init__(self):
        self.lock = LOCK

    def f(self, x):
        return x


def functions_with_locks():
    lock = LOCK

    def f(x):
        with lock:
            return x

    yield "a variable", f, "`lock`, a lock that `f` refers to, does not pickle"
    yield "of a derivative", ft.grad(f), "`lock`, a lock that `f` refers to, does not pickle"
    yield "a function in it", lambda x: f(x), "`lock`, a lock that `f` refers to, does not pickle"
    yield "a method", Locked().f, "`self`, a Locked that `f` refers to, does not pickle"


@pytest.mark.parametrize("f, text", [
    pytest.param(f, text, id=name) for name, f, text in functions_with_locks()
])
def test_what_does_not_pickle_is_named(f, text):
    pytest.importorskip("cloudpickle")
    with pytest.raises(errors.ArgumentError, match=text):
        ft.vmap(f, chunk_size=1, executor=Inline())(W)


@ft.jit
def jitted(x):
    return np.sin(x) * 2


@ft.custom_jvp
def ruled(x):
    return x**2


ruled.defjvp(lambda primals, tangents: (ruled(*primals), 5.0 * tangents[0]))
slope = ft.grad(ruled)


@pytest.mark.parametrize("f", [jitted, ruled, slope], ids=["jit", "custom_jvp", "grad"])
def test_functions_of_a_script_are_sent_by_value(f, monkeypatch):
    pytest.importorskip("cloudpickle")
    assert unpack(pack("vmap", f, "f", "process")) is f or f is slope
    unpack.cache_clear()
    monkeypatch.setattr(sys.modules["__main__"], f.__name__, f, raising=False)
    for part in (f, ruled.rules[0], ruled.__wrapped__, jitted.__wrapped__, slope, ruled):
        monkeypatch.setattr(part, "__module__", "__main__")
    again = unpack(pack("vmap", f, "f", "process"))
    assert again is not f
    assert_array_equal(again(2.0), f(2.0))
    unpack.cache_clear()


def test_without_cloudpickle_functions_need_a_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    assert_array_equal(ft.vmap(np.sin, chunk_size=1, executor=Inline())(W), np.sin(W))
    with pytest.raises(errors.ArgumentError, match=r"to a Inline: `<lambda>` does not pickle .*"
                       r"Define functions at the top level of a module"):
        ft.vmap(lambda x: x, chunk_size=1, executor=Inline())(W)


def test_traced_values_stay_with_their_tape(threads):
    def outer(w):
        return np.sum(ft.vmap(np.sin, chunk_size=2, executor=threads)(w))

    def closing(w):
        return np.sum(ft.vmap(lambda x: x * w, chunk_size=2, executor=threads)(np.ones(3)))

    def summed(w):
        return ft.parallel.total(loss, chunk_size=9, executor=threads)(w, X, Y)

    def summing(w):
        def f(v, x):
            return np.sum(w * x)
        return ft.parallel.total(f, chunk_size=9, executor=threads)(0.0, Y)

    for f, text in [
        (outer, r"vmap: an argument of `sin` is traced by grad\(outer\), whose tape other workers"),
        (closing, r"vmap: the output of `<lambda>` is traced by grad\(closing\)"),
        (summed, r"parallel.total: an argument of `loss` is traced by grad\(summed\)"),
        (summing, r"parallel.total: the output of `f` is traced by grad\(summing\)"),
    ]:
        with pytest.raises(errors.UnsupportedError, match=text):
            ft.grad(f)(W if f is not summing else 1.0)


# ---- matrices


def map_of(w, scale=2.0):
    return np.sin(scale * w[:5]) * w[1] ** 2, {"sum": np.sum(w * w)}


@pytest.mark.parametrize("transform, f", [
    (ft.jacobian, map_of), (ft.jacfwd, map_of), (ft.jacrev, map_of), (ft.hessian, length),
], ids=["jacobian", "jacfwd", "jacrev", "hessian"])
def test_columns_on_an_executor_are_the_matrix_to_the_last_bit(transform, f, threads):
    w = np.linspace(0.5, 1.5, 7)
    alone = ft.tree.leaves(transform(f, chunk_size=3)(w))
    for executor in (threads, Inline()):
        shared = transform(f, chunk_size=3, executor=executor)(w)
        assert all(map(np.array_equal, ft.tree.leaves(shared), alone))


def test_a_matrix_on_an_executor_fills_an_array(threads):
    w, J = np.linspace(0.5, 1.5, 7), np.zeros((7, 7))
    options = dict(out=J, chunk_size=2, executor=threads)
    assert ft.jacobian(np.cumprod, **options)(w) is J
    assert_array_equal(J, ft.jacobian(np.cumprod, chunk_size=2)(w))
    assert ft.jacobian(np.sin, chunk_size=2, executor=threads)(np.zeros(0)).shape == (0, 0)


def test_a_matrix_on_an_executor_that_cannot_be_says_why(threads):
    with pytest.raises(errors.ArgumentError, match="jacobian: executor needs a chunk_size, the nu"):
        ft.jacobian(np.sin, executor=threads)
    inner = ft.jacobian(np.sin, chunk_size=2, executor=threads)
    with pytest.raises(errors.UnsupportedError, match="jacobian: an argument of `sin` is traced"):
        ft.grad(lambda w: np.sum(inner(w)))(W)
    with pytest.raises(ValueError, match="no nine") as caught:
        ft.jacfwd(np.sin, chunk_size=1, executor=Stuck(ValueError("no nine")))(W)
    assert "chunk 0 (directions 0 to 0 of 3)" in caught.value.__notes__[0]


# ---- sums over shards

SUMS = {
    "total": (ft.parallel.total, loss, (W,), lambda w: loss(w, X, Y)),
    "grad": (ft.parallel.grad, loss, (W,), ft.grad(lambda w: loss(w, X, Y))),
    "value_and_grad": (ft.parallel.value_and_grad, loss, (W,),
                       ft.value_and_grad(lambda w: loss(w, X, Y))),
    "hvp": (ft.parallel.hvp, loss, (W, W), lambda w, v: ft.hvp(lambda w: loss(w, X, Y), w, v)),
    "jacobian": (ft.parallel.jacobian, moments, (W,), ft.jacobian(lambda w: moments(w, X, Y))),
    "hessian": (ft.parallel.hessian, loss, (W,), ft.hessian(lambda w: loss(w, X, Y))),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_over_shards_are_the_derivatives_of_the_sum(name, threads):
    transform, f, args, whole = SUMS[name]
    result = transform(f, chunk_size=4)(*args, X, Y)
    for a, b in zip(ft.tree.leaves(result), ft.tree.leaves(whole(*args)), strict=True):
        assert type(a) is ft.Array
        assert_allclose(a, b, rtol=1e-12)
    shared = transform(f, chunk_size=4, executor=threads)(*args, X, Y)
    assert all(map(np.array_equal, ft.tree.leaves(shared), ft.tree.leaves(result)))


def test_processes_add_to_the_same_bits(processes):
    g = ft.parallel.grad(loss, chunk_size=2, executor=processes)(W, X, Y)
    assert_array_equal(g, ft.parallel.grad(loss, chunk_size=2)(W, X, Y))


def test_a_mean_weights_shards_by_their_rows():
    def mean(w, X, y):
        return np.mean((X @ w - y) ** 2) + np.sum(w**2)

    value, g = ft.parallel.value_and_grad(mean, chunk_size=10, reduction="mean")(W, X, Y)
    expected, slope = ft.value_and_grad(lambda w: mean(w, X, Y))(W)
    assert_allclose(value, expected, rtol=1e-12)
    assert_allclose(g, slope, rtol=1e-12)


def test_parameters_and_data_may_be_containers():
    def f(params, data, scale):
        return scale * loss(params["w"] * params["s"], data["X"], data["y"])

    params, data = {"w": W, "s": np.float32(2.0)}, {"X": X, "y": Y}
    g, slope = ft.parallel.grad(f, (0, 2), chunk_size=5, in_axes=[None, 0, None])(params, data, 3.0)
    expected, other = ft.grad(f, (0, 2))(params, data, 3.0)
    assert_allclose(g["w"], expected["w"], rtol=1e-12)
    assert g["s"].dtype == np.float32
    assert_allclose(g["s"], expected["s"], rtol=1e-6)  # added in float32
    assert_allclose(slope, other, rtol=1e-12)


def test_data_may_be_on_disk_or_sparse(tmp_path):
    np.save(tmp_path / "x.npy", X)
    expected = ft.grad(lambda w: loss(w, X, Y))(W)
    for data in (np.load(tmp_path / "x.npy", mmap_mode="r"), scipy.sparse.csr_array(X)):
        assert_allclose(ft.parallel.grad(loss, chunk_size=5)(W, data, Y), expected, rtol=1e-12)


def test_without_an_executor_sums_are_differentiated_from_outside():
    def total(w):
        return ft.parallel.total(loss, chunk_size=5)(w, X, Y)

    assert_allclose(ft.grad(total)(W), ft.grad(lambda w: loss(w, X, Y))(W), rtol=1e-12)


def test_the_sum_has_the_shape_of_the_tree_whatever_arrives_first():
    sums, values = Sums("w", "f", False), np.sin(np.arange(2 * FAN_IN**2 + 3))
    for n in (1, 2, FAN_IN, FAN_IN + 1, FAN_IN**2, FAN_IN**2 + 1, len(values)):
        parts = [Part(i, 1, ((),), v) for i, v in enumerate(values[:n])]
        tree = Tree(sums)
        for p in parts:
            tree.add(p)
        while len(parts) > 1:
            parts = [sums.join(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
        assert tree.total() == parts[0]


def test_a_shard_without_rows_adds_nothing():
    sums = Sums("w", "f", True)
    total = sums.join([Part(0, 0, ((2,),), None), Part(1, 2, ((2,),), 6.0)])
    assert total == Part(0, 2, ((2,),), 6.0)
    assert sums.result(total) == 3.0
    with pytest.raises(errors.ShapeError, match=r"parallel.grad: there are no rows in the data"):
        ft.parallel.grad(loss, chunk_size=2)(W, X[:0], Y[:0])


def returns(y):
    return lambda w, x: y


@pytest.mark.parametrize("call, error, text", [
    (lambda: ft.parallel.grad(loss, chunk_size=0), errors.ArgumentError,
     "parallel.grad: chunk_size must be an int of at least 1, but is 0"),
    (lambda: ft.parallel.grad(loss, chunk_size=2, reduction="max"), errors.ArgumentError,
     'parallel.grad: reduction must be one of sum, mean, but is \'max\''),
    (lambda: ft.parallel.grad(loss, chunk_size=2, in_axes=(None, 1, 0)), errors.ArgumentError,
     r"in_axes must be a tuple of 0, sharded along axis 0, and None, passed whole, but is \(None"),
    (lambda: ft.parallel.grad(loss, "w", chunk_size=2), errors.ArgumentError,
     "argnums must be positions of arguments that are passed whole, an int from 0 on or a tuple"),
    (lambda: ft.parallel.grad(loss, 1, chunk_size=2)(W, X, Y), errors.ArgumentError,
     "argnums names argument 1 of `loss`, which is sharded. Derivatives are summed over"),
    (lambda: ft.parallel.grad(loss, 3, chunk_size=2)(W, X, Y), errors.ArgumentError,
     "argnums names argument 3 of `loss`, which is missing"),
    (lambda: ft.parallel.grad(loss, chunk_size=2, in_axes=(None, 0))(W, X, Y), errors.ArgumentError,
     "in_axes must have one entry for each argument of `loss`, but is .* for 3 arguments"),
    (lambda: ft.parallel.grad(loss, chunk_size=2)(W), errors.ArgumentError,
     "no argument of `loss` is sharded; in_axes is"),
    (lambda: ft.parallel.grad(loss, chunk_size=2)(W, X, 1.0), errors.ArgumentError,
     "argument 2 of `loss` is float 1.0, which has no rows to cut. Pass arrays, or None for it"),
    (lambda: ft.parallel.grad(loss, chunk_size=2)(W, X, Y[:5]), errors.ShapeError,
     "argument 2 of `loss` has 5 rows, argument 1 has 23. Pass None for an argument in in_axes"),
    (lambda: ft.parallel.total(returns("no"), chunk_size=2)(W, X), errors.ArgumentError,
     "`<lambda>` returned str 'no', which has no sum over shards. Return numbers"),
    (lambda: ft.parallel.total(returns(np.True_), chunk_size=2)(W, X), errors.ArgumentError,
     "which has no sum over shards"),
    (lambda: ft.parallel.total(lambda w, x: x, chunk_size=22)(W, X), errors.ShapeError,
     r"must give the same shapes on every shard to be summed, but gave float64\[1, ?3\] on"),
], ids=range(13))
def test_sums_that_cannot_be_say_why(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_what_a_shard_raises_names_it():
    def f(w, x):
        if x[0] == 6:
            raise FloatingPointError("six")
        return np.sum(w * x)

    with pytest.raises(FloatingPointError, match="six") as caught:
        ft.parallel.grad(f, chunk_size=3)(1.0, np.arange(8.0))
    assert caught.value.__notes__ == [
        "parallel.grad: raised in shard 2 of 3 (rows 6 to 7) of `f`"
    ]


# ---- many starts


def hills(x):
    return np.sum(np.cos(3 * x) + x**2 / 10)


def solve(x0):
    return scipy.optimize.minimize(hills, x0, jac=ft.grad(hills))


def test_the_best_of_many_starts_is_returned(threads):
    starts = np.array([[-5.0], [0.1], [4.0]])
    best, results = multistart(solve, starts, executor=threads)
    alone = multistart(solve, starts)
    assert [r.fun for r in results] == [r.fun for r in alone.results]
    assert best is results[1]
    assert best.fun == min(r.fun for r in results)


def test_runs_that_failed_are_never_the_best():
    runs = [dict(fun=1.0), dict(fun=0.0, success=False), dict(fun=np.nan), dict(fun=3.0)]
    best, results = multistart(lambda i: SimpleNamespace(**runs[i]), range(4))
    assert best.fun == 1.0
    assert len(results) == 4
    with pytest.raises(errors.SolverError, match="none of the 2 runs of `<lambda>` has succeeded"):
        multistart(lambda i: SimpleNamespace(**runs[i]), [1, 2])


def test_a_run_that_raises_or_returns_something_else_says_so():
    with pytest.raises(errors.ArgumentError, match=r"`float` must return what scipy.optimize.mi"):
        multistart(float, [1])
    with pytest.raises(ZeroDivisionError) as caught:
        multistart(lambda i: 1 / i, [1, 0])
    assert caught.value.__notes__ == ["parallel.multistart: raised in start 1 of 2 of `<lambda>`"]
