"""Colourings are valid, on drawn and on extreme patterns, with and without numba."""

import functools
import itertools
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from functrans._transforms.sparse import coloring, kernels
from functrans._transforms.sparse.coloring import plan
from functrans._transforms.sparse.compressed import star_sources, substitution
from functrans._transforms.sparse.options import ORDERS
from tests.covering import THOROUGH


def drawn(seed, m, n, share, rows=0, columns=0):
    P = np.random.default_rng(seed).random((m, n)) < share
    P[:rows] = True
    P[:, :columns] = True
    return sparse.csr_array(P)


def symmetric(seed, n, share, dense=0):
    P = drawn(seed, n, n, share, dense).toarray()
    return sparse.csr_array(P | P.T | np.eye(n, dtype=bool)[:, ::-1] * False)


RECTANGLES = [
    drawn(0, 10, 12, 0.2), drawn(1, 12, 10, 0.2, 1), drawn(2, 12, 9, 0.1, 0, 1),
    drawn(3, 20, 20, 0.05, 2, 2), drawn(4, 0, 4, 0.1), drawn(5, 4, 0, 0.1), drawn(6, 1, 5, 0.5),
    drawn(7, 5, 1, 0.5), drawn(8, 5, 5, 0.0), drawn(9, 4, 5, 1.0),
]
SQUARES = [symmetric(0, 15, 0.1), symmetric(1, 20, 0.15), symmetric(2, 30, 0.05, 1),
           symmetric(3, 12, 0.4), symmetric(4, 40, 0.03, 2), symmetric(5, 0, 0.1),
           symmetric(6, 1, 1.0), symmetric(7, 6, 0.0), symmetric(8, 6, 1.0)]


def recovered(P, made):
    """Whether each entry stands alone where its plan reads it."""
    C = P.toarray()
    rows, columns = P.nonzero()
    for k, (i, j) in enumerate(zip(rows, columns, strict=True)):
        if made.by_row[k]:
            alone = made.rows[i] >= 0 and C[made.rows == made.rows[i], j].sum() == 1
        else:
            alone = made.columns[j] >= 0 and C[i, made.columns == made.columns[j]].sum() == 1
        if not alone:
            return False
    return True


@pytest.mark.parametrize("kind", ["auto", "column", "row", "bidirectional"])
@pytest.mark.parametrize("order", ORDERS)
def test_each_entry_of_a_jacobian_stands_alone_in_a_product(kind, order):
    for P in RECTANGLES:
        made = plan(P, kind, order)
        assert recovered(P, made)
        assert kind != "column" or not made.reverse
        assert kind != "row" or not made.forward


@pytest.mark.parametrize("P, kind, colors", [
    (drawn(9, 4, 5, 1.0), "column", 5), (drawn(9, 4, 5, 1.0), "row", 4),
    (drawn(9, 4, 5, 1.0), "auto", 4),
    (sparse.eye_array(7, format="csr", dtype=bool), "auto", 1),
    (drawn(0, 30, 30, 0.0, 1), "auto", 1), (drawn(0, 30, 30, 0.0, 0, 1), "auto", 1),
    (sparse.csr_array(np.eye(30) + drawn(0, 30, 30, 0.0, 1, 1).toarray() > 0), "auto", 3),
    (sparse.csr_array(np.eye(30) + drawn(0, 30, 30, 0.0, 1, 1).toarray() > 0), "column", 30),
    (drawn(0, 5, 5, 0.0), "auto", 0),
])
def test_as_few_colors_as_there_can_be(P, kind, colors):
    assert plan(P, kind, "largest_first").total == colors


def test_a_band_is_colored_by_its_width():
    P = sparse.diags_array([np.ones(1000)] * 5, offsets=[-2, -1, 0, 1, 2], shape=(1000, 1000))
    made = plan(sparse.csr_array(P.astype(bool)), "auto", "natural")
    assert made.forward == 5 and not made.reverse
    assert np.array_equal(made.columns, np.arange(1000) % 5)


def line(n, reach=1):
    offsets = range(-reach, reach + 1)
    return sparse.diags_array([np.ones(n)] * len(offsets), offsets=list(offsets), shape=(n, n))


def sorted_rows(P):
    P = sparse.csr_array(P.astype(bool))
    P.sort_indices()
    return P


def box(n, axes):
    """Every neighbour on a grid, diagonal ones too."""
    return sorted_rows(functools.reduce(sparse.kron, [line(n)] * axes))


def cross(n, axes):
    """The neighbours along the axes of a grid."""
    one = sparse.eye_array(n)
    parts = [[line(n) if a == b else one for b in range(axes)] for a in range(axes)]
    return sorted_rows(sum(functools.reduce(sparse.kron, p) for p in parts))


def arrow(n):
    P = np.eye(n)
    P[0] = P[:, 0] = 1
    return sorted_rows(sparse.csr_array(P))


# Columns: the widest row where that is reached; 5 on the infinite grid. Star colours: 5 on a grid,
# 3 on a path (Fertin, Raspaud and Reed, J. Graph Theory 47, 2004), acyclic ones: 3, and 2 on a
# path; ours are greedy, and may be more on grids. An arrow's star has two colours.
@pytest.mark.parametrize("P, kind, fewest, ours", [
    (cross(12, 2), "column", 5, 5), (box(12, 2), "column", 9, 9), (cross(7, 3), "column", 7, 10),
    (box(7, 3), "column", 27, 27), (sorted_rows(line(40, 4)), "column", 9, 9),
    (arrow(40), "auto", 3, 3),
    (cross(12, 2), "star", 5, 5), (box(12, 2), "star", 9, 9), (cross(12, 2), "acyclic", 3, 4),
    (sorted_rows(line(40)), "star", 3, 3), (sorted_rows(line(40)), "acyclic", 2, 2),
    (arrow(40), "star", 2, 2), (arrow(40), "acyclic", 2, 2),
], ids=lambda p: "" if isinstance(p, sparse.sparray) else None)
def test_grids_and_bands_take_as_few_colors_as_are_known(P, kind, fewest, ours):
    if kind in ("star", "acyclic"):
        colored = {"star": coloring.star_colors, "acyclic": coloring.acyclic_colors}[kind]
        count = int(colored(P, "saturation").max()) + 1
    else:
        made = plan(P, kind, "saturation")
        assert recovered(P, made)
        count = made.total
    assert fewest <= count == ours


@pytest.mark.parametrize("label, P", [
    ("5 points", cross(30, 2)), ("9 points", box(30, 2)), ("7 points", cross(12, 3)),
    *[("27 points", box(12, 3))] * THOROUGH,
], ids=lambda p: p if isinstance(p, str) else "")
def test_the_page_s_table_of_grids_is_what_is_found(label, P):
    page = (Path(__file__).parents[2] / "docs" / "sparse.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith(f"| {label} |"))
    fewest, *written = map(int, row.strip("| ").split(" | ")[1:])
    orders = ["largest_first"] + ["saturation"] * (label != "27 points")  # the same, and slow
    found = [plan(P, "column", order).total for order in orders]
    found += found[:1] * (len(found) < 2)
    found += [int(c(P, "largest_first").max()) + 1
              for c in (coloring.star_colors, coloring.acyclic_colors)]
    assert found == written
    assert fewest == np.diff(P.indptr).max()


def scattered(n, share):
    k = int(n * n * share)
    rows, columns = np.random.default_rng(0).integers(0, n, (2, k))
    P = sparse.csr_array((np.ones(k), (rows, columns)), shape=(n, n))
    return sorted_rows(P + P.T + sparse.eye_array(n))


# What ColPack 1.0.10 finds, the least of its orders (natural, largest first, smallest last,
# incidence degree), in columns, and in star and acyclic colours.
@pytest.mark.parametrize("P, colpack", [
    (sorted_rows(line(500, 4)), (9, 9, 5)), (cross(30, 2), (5, 5, 4)), (box(30, 2), (9, 11, 6)),
    (cross(8, 3), (10, 10, 6)), (arrow(200), (200, 4, 2)),
    (scattered(1000, 0.002), (15, 10, 5)), (scattered(500, 0.01), (31, 20, 9)),
], ids=["band", "5 points", "9 points", "7 points", "arrow", "scattered", "denser"])
def test_no_more_colors_than_colpack_finds(P, colpack):
    ours = [
        min(plan(P, "column", o).total for o in ORDERS),
        *[min(int(c(P, o).max()) + 1 for o in ORDERS)
          for c in (coloring.star_colors, coloring.acyclic_colors)],
    ]
    assert all(a <= b for a, b in zip(ours, colpack, strict=True)), ours


def test_saturation_never_takes_more_than_the_largest_first():
    for seed in range(8):
        P = drawn(seed, 60, 60, 0.06)
        counts = [plan(P, "column", order).total for order in ("largest_first", "saturation")]
        assert np.diff(P.indptr).max() <= counts[1] <= counts[0]


def neighbours(P):
    C = P.toarray()
    return [[w for w in range(len(C)) if C[v, w] and w != v] for v in range(len(C))]


@pytest.mark.parametrize("order", ORDERS)
def test_star_colorings_have_no_path_of_four_in_two_colors(order):
    for P in SQUARES:
        c = coloring.star_colors(P, order)
        near = neighbours(P)
        for v, around in enumerate(near):
            assert all(c[v] != c[w] for w in around)
            paths = [(v, w, x, y) for w in around for x in near[w] if x != v
                     for y in near[x] if y not in (w, v)]
            assert all(len({c[u] for u in path}) > 2 for path in paths)


@pytest.mark.parametrize("order", ORDERS)
def test_acyclic_colorings_have_forests_between_two_colors(order):
    for P in SQUARES:
        c = coloring.acyclic_colors(P, order)
        pairs = sparse.coo_array(sparse.triu(P, 1))
        for a, b in itertools.combinations(range(int(c.max(initial=-1)) + 1), 2):
            parent = list(range(P.shape[0]))
            for i, j in zip(*pairs.coords, strict=True):
                assert c[i] != c[j]
                if {c[i], c[j]} == {a, b}:
                    i, j = kernels.root(parent, i), kernels.root(parent, j)
                    assert i != j
                    parent[i] = j


def products(H, c):
    return np.stack([H[:, c == k].sum(1) for k in range(int(c.max(initial=-1)) + 1)] or [H[:0]])


@pytest.mark.parametrize("order", ORDERS)
def test_a_hessian_is_recovered_from_the_products_of_its_colors(order):
    for seed, P in enumerate(SQUARES):
        H = np.random.default_rng(seed).integers(1, 9, P.shape).astype(float)
        H = (H + H.T) * P.toarray()
        entries = H[P.nonzero()]
        if not P.nnz:
            continue
        c = coloring.star_colors(P, order)
        by, place = star_sources(P, c)
        assert np.array_equal(products(H, c)[by, place], entries)
        c = coloring.acyclic_colors(P, order)
        data = np.empty(P.nnz)
        substitution(P, c).into(data, products(H, c).reshape(-1))
        assert np.array_equal(data, entries)


def test_dense_variables_of_a_hessian_have_colors_of_their_own():
    n = 3000
    places = np.repeat([0, 7], n), np.tile(np.arange(n), 2)
    hubs = sparse.csr_array((np.ones(2 * n, bool), places), shape=(n, n))
    P = sparse.csr_array((hubs + hubs.T + sparse.eye_array(n)).astype(bool))
    for colored in (coloring.star_colors, coloring.acyclic_colors):
        c = colored(P, "largest_first")
        assert c.max() == 2 and c[0] != c[7]


def test_a_path_is_colored_in_turns_and_substituted_along():
    n = 200
    P = sparse.diags_array([np.ones(n)] * 3, offsets=[-1, 0, 1], shape=(n, n)).astype(bool)
    P = sparse.csr_array(P)
    assert coloring.star_colors(P, "natural").max() == 2
    c = coloring.acyclic_colors(P, "natural")
    assert c.max() == 1
    H = np.random.default_rng(0).integers(1, 9, (n, n)) * P.toarray() * 1.0
    H = H + H.T
    data = np.empty(P.nnz)
    substitution(P, c).into(data, products(H, c).reshape(-1))
    assert np.array_equal(data, H[P.nonzero()])


def test_compiled_kernels_give_what_the_same_python_gives(monkeypatch):
    pytest.importorskip("numba")
    P, Q = RECTANGLES[1], SQUARES[4]
    plain = [plan(P, "column", o).columns for o in ORDERS], coloring.star_colors(Q, "natural")
    monkeypatch.setattr(kernels, "COMPILED", 0)
    native = [plan(P, "column", o).columns for o in ORDERS], coloring.star_colors(Q, "natural")
    assert np.array_equal(plain[0], native[0]) and np.array_equal(plain[1], native[1])
