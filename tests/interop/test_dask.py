"""Sums over shards on a dask cluster: two processes on this machine."""

import contextlib
import gc
import logging
import math
import os
import signal
import subprocess
import sys
from subprocess import PIPE
from unittest import mock

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans import errors
from tests.covering import THOROUGH
from tests.losses import loss, moments

dask = pytest.importorskip("dask")  # an extra
distributed = pytest.importorskip("distributed")

import dask.array as da  # noqa: E402  # after the check that it is there

import functrans.dask as fd  # noqa: E402

# Sockets and tasks that distributed leaves behind with a killed process are reported when they are
# collected, at any time after that: here.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
ROWS, SHARD = 41, 5
X = np.sin(np.arange(3.0 * ROWS) ** 2).reshape(ROWS, 3)
Y, W = np.sign(np.cos(np.arange(ROWS) * 1.7)), np.array([0.3, -1.2, 0.7])
MARK = X[20, 0]  # the first row of shard 4 has it


def serial(f):
    return lambda w, *rest: f(w, X, Y, *rest)


def blocks():
    return da.from_array(X, chunks=(SHARD, 3)), da.from_array(Y, chunks=SHARD)


SUMS = {
    "total": (fd.total, loss, (W,), serial(loss)),
    "grad": (fd.grad, loss, (W,), ft.grad(serial(loss))),
    "value_and_grad": (fd.value_and_grad, loss, (W,), ft.value_and_grad(serial(loss))),
    "hvp": (fd.hvp, loss, (W, W), lambda w, v: ft.hvp(serial(loss), w, v)),
    "jacobian": (fd.jacobian, moments, (W,), ft.jacobian(serial(moments))),
    "hessian": (fd.hessian, loss, (W,), ft.hessian(serial(loss))),
}


@contextlib.contextmanager
def quiet():
    """Without what distributed logs of workers that die."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@pytest.fixture(scope="module", autouse=True)
def nothing_is_left_behind():
    """The next module has no leftovers of this one's clusters, nor the variables that dask sets
    in this process for those that it starts: OMP_NUM_THREADS and its kin."""
    with mock.patch.dict(os.environ):
        yield
    gc.collect()


@pytest.fixture(scope="module", autouse=True)
def bytecode_of_dask():
    """Processes use the bytecode that was installed with dask, which a prefix would hide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPYCACHEPREFIX", raising=False)
        yield


@pytest.fixture(scope="module")
def client():
    options = {"distributed.scheduler.allowed-failures": 1, "distributed.admin.log-length": 10}
    with quiet(), dask.config.set(options), distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0",
        host="127.0.0.1", silence_logs=False,
    ) as cluster, distributed.Client(cluster) as client:
        yield client


# ---- on the cluster


@pytest.mark.parametrize("name", SUMS)
def test_the_cluster_computes_what_one_process_does(name, client):
    transform, f, args, whole = SUMS[name]
    result, expected = transform(f)(*args, *blocks()), whole(*args)
    for a, b in zip(ft.tree.leaves(result), ft.tree.leaves(expected), strict=True):
        assert type(a) is ft.Array
        assert_allclose(a, b, rtol=1e-12)


def test_the_bits_are_those_of_a_loop_over_the_shards(client):
    expected = ft.parallel.grad(loss, chunk_size=SHARD)(W, X, Y)
    assert_array_equal(fd.grad(loss)(W, *blocks()), expected)


def test_data_on_the_workers_stay_there(client):
    persisted = client.persist(list(blocks()))
    graph = fd.grad(loss, compute=False)(W, *persisted)
    arrays = [x for x in graph.__dask_graph__().values() if isinstance(x, np.ndarray)]
    assert not arrays  # blocks are futures in the graph
    assert_allclose(graph.compute(), ft.grad(serial(loss))(W), rtol=1e-12)
    scattered = client.scatter([X[:20], X[20:]]), client.scatter([Y[:20], Y[20:]])
    assert_allclose(fd.grad(loss)(W, *scattered), ft.grad(serial(loss))(W), rtol=1e-12)


def test_the_executor_of_the_cluster_takes_chunks(client):
    executor = client.get_executor()
    g = ft.parallel.grad(loss, chunk_size=SHARD, executor=executor)(W, X, Y)
    assert_array_equal(g, ft.parallel.grad(loss, chunk_size=SHARD)(W, X, Y))
    y = ft.vmap(ft.jit(lambda x: np.sum(x**2)), chunk_size=20, executor=executor)(X)
    assert_allclose(y, np.sum(X**2, 1), rtol=1e-14)


def test_a_shard_that_raises_is_named(client):
    def refuses(w, X, y):
        if X[0, 0] == MARK:
            raise ZeroDivisionError("this row")
        return loss(w, X, y)

    with pytest.raises(ZeroDivisionError, match="this row") as caught:
        fd.grad(refuses)(W, *blocks())
    assert caught.value.__notes__ == ["functrans.dask.grad: raised in shard 4 of 9 of `refuses`"]


def test_the_loss_of_a_worker_changes_nothing(client, tmp_path):
    flag = tmp_path / "killed"

    def kills_once(w, X, y):
        if X[0, 0] == MARK and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(w, X, y)

    g = fd.grad(kills_once)(W, *client.persist(list(blocks())))
    assert flag.exists()
    assert_allclose(g, ft.grad(serial(loss))(W), rtol=1e-12)


@pytest.mark.skipif(not THOROUGH, reason="restarts two workers: FUNCTRANS_PROFILE=thorough")
def test_a_shard_that_kills_its_workers_is_named(client):
    def kills(w, X, y):
        if X[0, 0] == MARK:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(w, X, y)

    with pytest.raises(errors.ExecutorError, match=r"KilledWorker: .*functrans.dask.grad-shard-4-"):
        fd.grad(kills)(W, *blocks())


# ---- a cluster that goes away: one in another process

CLUSTER = """
import distributed, logging
logging.getLogger("distributed").setLevel(logging.CRITICAL)
cluster = distributed.LocalCluster(
    n_workers=1, threads_per_worker=1, processes=False, protocol="tcp://", host="127.0.0.1",
    dashboard_address="127.0.0.1:0", silence_logs=False,
)
print(cluster.scheduler_address, flush=True)
input()
"""


def test_a_cluster_that_goes_away_is_an_error():
    def kills_all(w, x):
        if x[0] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.sum(w * x)

    shards = [np.full(2, i) for i in range(8)]
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        with quiet(), distributed.Client(process.stdout.readline().strip()) as client:
            with pytest.raises(errors.ExecutorError, match=r"grad: the cluster ended before all"):
                fd.grad(kills_all)(1.0, shards)
            with pytest.raises(errors.ExecutorError, match=r"cluster ended .*the client is c"):
                fd.grad(kills_all)(1.0, shards)
            with pytest.raises(errors.ExecutorError, match=r"ClientExecutor failed before shard 0"):
                executor = client.get_executor()
                ft.parallel.grad(loss, chunk_size=9, executor=executor)(W, X, Y)
        process.kill()


# ---- graphs, by dask's scheduler in this thread


@pytest.fixture
def here():
    with dask.config.set(scheduler="sync"):
        yield


def test_shards_may_be_delayed_containers(here):
    def f(w, shard):
        return loss(w, shard["X"], shard["y"])

    shards = [
        {"X": dask.delayed(X[i : i + 10]), "y": dask.delayed(Y[i : i + 10])}
        for i in range(0, ROWS, 10)
    ]
    assert_allclose(fd.grad(f)(W, shards), ft.grad(serial(loss))(W), rtol=1e-12)


def test_arrays_with_other_cuts_are_cut_as_the_first(here):
    x, y = blocks()
    assert_array_equal(fd.grad(loss)(W, x, y.rechunk(7)), fd.grad(loss)(W, x, y))


def test_blocks_of_unknown_length_and_empty_ones_are_shards(here):
    x, y = blocks()
    kept = y > 0
    g = fd.grad(loss)(W, x[kept & (da.arange(ROWS, chunks=SHARD) > 9)],
                      y[kept & (da.arange(ROWS, chunks=SHARD) > 9)])
    rows = (Y > 0) & (np.arange(ROWS) > 9)
    assert_allclose(g, ft.grad(loss)(W, X[rows], Y[rows]), rtol=1e-12)


def test_a_mean_over_blocks_weights_them_by_their_rows(here):
    def mean(w, X, y):
        return np.mean((X @ w - y) ** 2)

    g = fd.grad(mean, reduction="mean")(W, *blocks())
    assert_allclose(g, ft.grad(mean)(W, X, Y), rtol=1e-12)


def test_a_lazy_result_is_of_the_arguments_as_they_were(here):
    w, shards = W.copy(), [X[:20].copy(), X[20:].copy()]
    state = {"w": w}
    later = fd.grad(lambda s, x: np.sum((x @ s["w"]) ** 2), compute=False)(state, shards)
    expected = 2 * X.T @ (X @ W)
    w[:], state["w"], shards[0][:] = 9.0, w * 2, 7.0
    assert_allclose(later.compute()["w"], expected, rtol=1e-12)


def test_errors_in_a_task_name_the_users_line(here):
    def slips(w, x):
        return np.sum(x) * math.sin(w[0])

    line = slips.__code__.co_firstlineno + 1
    with pytest.raises(errors.ConcretizationError) as caught:
        fd.grad(slips)(W, da.from_array(X, chunks=(SHARD, 3)))
    assert str(caught.value).startswith(f"{__file__}:{line}: math.sin(w[0]) got")


def test_arguments_that_are_no_data_are_passed_whole(here):
    def f(w, X, scale):
        return scale * np.sum(np.tanh(X @ w))

    x, _ = blocks()
    g = fd.grad(f, (0, 2), in_axes=(None, 0, None))(W, x, 2.0)
    expected = ft.grad(f, (0, 2))(W, X, 2.0)
    assert_allclose(g[0], expected[0], rtol=1e-12)
    assert_allclose(g[1], expected[1], rtol=1e-12)


STAGED = []


def counted(w, x):
    STAGED.append(1)
    return np.sum(np.sin(w * x))


def test_a_compiled_function_is_staged_once_in_a_process(here):
    f = ft.jit(lambda w, x: counted(w, x))
    STAGED.clear()
    for w in (1.0, 2.0):
        g = fd.grad(f)(w, da.arange(12.0, chunks=4))
        assert_allclose(g, ft.grad(lambda w: np.sum(np.sin(w * np.arange(12.0))))(w), rtol=1e-12)
    assert len(STAGED) == 1


def test_settings_of_a_block_hold_in_a_graph(here):
    with ft.config(kinks="raise"), pytest.raises(errors.NotDifferentiable):
        fd.grad(lambda w, x: np.sum(np.abs(w) * x))(0.0, da.ones(3, chunks=2))


def bad_calls():
    x, y = blocks()
    narrow = [X[:5], X[5:9, :1]]
    yield "columns", lambda: fd.grad(lambda w, x: np.sum(w**2) * np.sum(x))(W, narrow), (
        errors.ShapeError, r"rows of one shape, but those of shard 1 are \(1,\), those of shard 0")
    yield "blocks across", lambda: fd.grad(loss)(W, x.rechunk((5, 2)), y), (
        errors.ShapeError, r"an array has \(9, 2\) blocks. Use x.rechunk\(\{1: -1\}\)")
    yield "rows", lambda: fd.grad(loss)(W, x, y[:20]), (
        errors.ShapeError, "must have the same number of rows, but have 41, 20")
    yield "rows of a shard", lambda: fd.grad(loss)(W, [X[:5]], [Y[:4]]), (
        errors.ShapeError, r"but shard 0 of `loss` has float64\[5, ?3\], float64\[4\]")
    yield "shards", lambda: fd.grad(loss)(W, [X], [Y, Y]), (
        errors.ShapeError, "must have the same number of shards, at least one, but have 1, 2")
    yield "no shards", lambda: fd.grad(loss)(W, [], []), (
        errors.ShapeError, "at least one, but have 0, 0")
    yield "NumPy", lambda: fd.grad(loss)(W, x, Y), (
        errors.ArgumentError, r"must be dask arrays with rows, or lists .* but got float64\[41\]")
    yield "traced", lambda: ft.grad(lambda w: fd.total(loss)(w, x, y))(W), (
        errors.UnsupportedError, r"functrans.dask.total: an argument of `loss` is traced by grad")


@pytest.mark.parametrize("call, error", [
    pytest.param(call, error, id=name) for name, call, error in bad_calls()
])
def test_data_that_do_not_fit_are_refused(call, error, here):
    with pytest.raises(error[0], match=error[1]):
        call()
