"""Decompositions of matrices with NaN or inf, which some of LAPACK's routines never come back from.

All calls are made in one process, which is killed if it does not end.
"""

import functools
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
import functrans.torch as torch
from tests import compiling

SIZES = (3, 30)
FUNCTIONS = {
    "det": np.linalg.det,
    "slogdet": lambda a: np.linalg.slogdet(a)[1],
    "inv": lambda a: np.linalg.inv(a).sum(),
    "solve": lambda a: np.linalg.solve(a, np.ones(len(a))).sum(),
    "cholesky": lambda a: np.linalg.cholesky(a).sum(),
    "eigh": lambda a: sum((y * y).sum() for y in np.linalg.eigh(a)),
    "eigvalsh": lambda a: (np.linalg.eigvalsh(a) ** 2).sum(),
    "eig": lambda a: sum(np.abs(y).sum() for y in np.linalg.eig(a)),
    "svd": lambda a: sum((y * y).sum() for y in np.linalg.svd(a)),
    "svdvals": lambda a: (np.linalg.svd(a, compute_uv=False) ** 2).sum(),
    "norm": lambda a: np.linalg.norm(a, 2),
    "nuclear norm": lambda a: np.linalg.norm(a, "nuc"),
    "cond": np.linalg.cond,
    "pinv": lambda a: np.linalg.pinv(a).sum(),
    "lstsq": lambda a: np.linalg.lstsq(a, np.ones(len(a)), rcond=None)[0].sum(),
    "rank": lambda a: np.linalg.matrix_rank(a) * a[0, 0],
    "qr": lambda a: np.linalg.qr(a)[1].sum(),
}
MODES = {
    "jvp": lambda f, a: ft.jvp(f, a, np.ones(a.shape)),
    "grad": lambda f, a: ft.value_and_grad(f)(a),
    "hvp": lambda f, a: ft.hvp(f, a, np.ones(a.shape))[1],
    "jit": lambda f, a: compiled(f)(a),
    "jit grad": lambda f, a: compiled(f, ft.value_and_grad)(a),
    "vmap": lambda f, a: ft.vmap(f)(np.stack([regular(len(a)), a]))[1],
    "vmap grad": lambda f, a: ft.vmap(ft.value_and_grad(f))(np.stack([regular(len(a)), a]))[1][1],
}


@functools.cache
def compiled(f, transform=lambda f: f):
    """The same at every matrix, so that each size is compiled once."""
    return ft.jit(transform(f))


def regular(n):
    a = np.random.default_rng(0).normal(size=(n, n))
    return a + a.T + 4 * n * np.eye(n)


def matrices(bad):
    """Finite but for one entry of each triangle, for one on the diagonal, and not at all."""
    for n in SIZES:
        for where in ([(0, 1), (1, 0)], [(0, 0)], [...]):
            a = regular(n)
            for at in where:
                a[at] = bad
            yield a


def outcome(f, mode, a):
    try:
        with np.errstate(all="ignore"):
            *_, y = np.atleast_1d(*parts) if isinstance(parts := mode(f, a), tuple) else (parts,)
    except np.linalg.LinAlgError:
        return "LinAlgError"
    return "nan" if np.isnan(y).all() else "numbers"


def main():
    with compiling.without_optimising():
        found = {}
        for kind, (name, f), mode in itertools.product(("inf", "nan"), FUNCTIONS.items(), MODES):
            case = f"{mode} of {name} of {kind}"
            print(case, file=sys.stderr, flush=True)
            found[case] = [outcome(f, MODES[mode], a) for a in matrices(float(kind))]
    print("\n" + json.dumps(found))


@pytest.fixture(scope="module")
def outcomes():
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c",
             f"import {__name__} as tests; tests.main()"],
            capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2],
        )
    except subprocess.TimeoutExpired as stuck:
        last = (stuck.stderr or b"").decode().splitlines()[-1]
        pytest.fail(f"no end of {last}")
    assert done.returncode == 0, done.stderr
    # LAPACK writes to the same place
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(line)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_call_comes_to_an_end(outcomes, name, mode):
    for kind in ("inf", "nan"):
        assert len(outcomes[f"{mode} of {name} of {kind}"]) == 6


@pytest.mark.parametrize("mode", ["jvp", "grad", "hvp", "jit grad", "vmap grad"])
def test_the_derivative_of_det_is_nan(outcomes, mode):
    for kind in ("inf", "nan"):
        assert set(outcomes[f"{mode} of det of {kind}"]) == {"nan"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["svd", "pinv", "lstsq"])
def test_singular_vectors_do_not_converge(outcomes, name, mode):
    for kind in ("inf", "nan"):
        assert set(outcomes[f"{mode} of {name} of {kind}"]) == {"LinAlgError"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["svdvals", "norm", "nuclear norm"])
def test_singular_values_are_nan_at_inf_and_do_not_converge_at_nan_as_in_numpy(
    outcomes, name, mode
):
    assert set(outcomes[f"{mode} of {name} of inf"]) == {"nan"}
    assert set(outcomes[f"{mode} of {name} of nan"]) == {"LinAlgError"}


def test_of_a_stack_the_finite_ones_have_their_derivative():
    good, bad = regular(3), np.where(np.eye(3) > 0, np.inf, 1.0)
    for f in (FUNCTIONS["det"], FUNCTIONS["svdvals"]):
        g = ft.vmap(ft.grad(f))(np.stack([good, bad]))
        np.testing.assert_allclose(g[0], ft.grad(f)(good), rtol=1e-13)
        assert np.isnan(g[1]).all()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", ["svd", "pinv"])
def test_the_shim_refuses_them_in_every_mode(name, requires_grad):
    a = torch.tensor(np.where(np.eye(3) > 0, np.inf, 1.0), requires_grad=requires_grad)
    with pytest.raises(RuntimeError, match=name):
        getattr(torch.linalg, name)(a)
