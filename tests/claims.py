"""Numbers that the pages name and the code has: each sentence, with a place for the number."""

from __future__ import annotations

import numpy as np

from functrans._compile.emit import entry_code, loop_nest, shared_text
from functrans._compile.ir import columns, expand
from functrans._compile.lowering import reals
from functrans._compile.rolling import pieces
from functrans._compile.run import checksum, gemm, verify
from functrans._compile.schedule import linear, schedule, tiles
from functrans._core import plain
from functrans._kernels import sizes
from functrans._ops import limits
from functrans._transforms.control import revolve
from functrans._transforms.matrices import batches, directions, waist
from functrans._transforms.reverse import cotangents, tracer
from functrans._transforms.sharding import shards
from functrans._transforms.sparse import api, compressed, staged_paths
from functrans._transforms.staging import environment, jit, recording
from functrans.numpy import indexing

KIB, MIB = 1 << 10, 1 << 20
EPS = np.finfo(float).eps
ORDINALS = {4: "fourth"}
WORDS = {2: "two", 3: "three", 4: "four", 6: "six", 8: "eight"}

NUMBERS: list[tuple[str, str, object]] = [
    ("conventions", "of traced arrays of {} float64 or more", sizes.VALUES),
    ("conventions", "sines of numbers beyond {:,}", int(reals.FAR)),
    ("conventions", "Arrays up to {} KiB are copied", tracer.COPIED // KIB),
    ("conventions", "a gap of {:.1e} (", EPS**limits.ONCE),
    ("conventions", "second ones {:.1e} (", EPS**limits.TWICE),
    ("sharp_edges", "Up to {} KiB they are copied", tracer.COPIED // KIB),
    ("sharp_edges", "up to `max_paths={}` of them", jit.MOST),
    ("sharp_edges", "a mask of up to {:,} entries chooses", indexing.MASK),
    ("sharp_edges", "the {} latest are kept", jit.KEPT),
    ("sharp_edges", "at the {} time a warning", ORDINALS[jit.MANY]),
    ("sharp_edges", "behind the first {:,} objects", environment.MOST),
    ("writing", "by `jit` and longer than {:,}", indexing.MASK),
    ("tutorials/fast", "the {} latest are kept", jit.KEPT),
    ("tutorials/fast", "From {:,} elements on, the backward", sizes.LARGE),
    ("tutorials/fast", "from {:,} on threads may share an operation", sizes.PARALLEL),
    ("how_jit_works", "Small products are kernels, up to {} multiplications", linear.SMALL_PRODUCT),
    ("how_jit_works", "or {:,} where one operand is a vector", linear.SMALL_VECTOR),
    ("how_jit_works", "solutions for up to {} columns", WORDS[expand.COLUMNS]),
    ("how_jit_works", "of matrices of up to {} rows", WORDS[expand.ROWS]),
    ("how_jit_works", "cofactors of up to {}:", WORDS[expand.COFACTORS]),
    ("how_jit_works", "`np.convolve` with more than {} taps", expand.TAPS),
    ("how_jit_works", "they must save some {} operations on numbers", pieces.LEAST),
    ("how_jit_works", "up to {:,} operations, because these are one kernel", 4 * pieces.LEAST),
    ("how_jit_works", "Sums and products of {} entries and more", WORDS[loop_nest.PAIRWISE]),
    ("how_jit_works", "Long sums run in blocks of {} numbers", loop_nest.BLOCK),
    ("how_jit_works", "the {} kinds of a function staged last are kept", jit.KEPT),
    ("how_jit_works", "with up to `jit(f, max_paths={})` paths", jit.MOST),
    ("how_jit_works", "more than {:,} guards", recording.MOST_DECISIONS),
    ("how_jit_works", "hand on more than {} large arrays", entry_code.LARGE),
    ("how_jit_works", "a guard for every {} entries", indexing.WORD),
    ("how_jit_works", "One of more than {:,} entries raises", indexing.MASK),
    ("how_jit_works", "of integers up to {}.", indexing.FEW),
    ("how_jit_works", "A difference of up to {:,.0f} roundings passes", verify.CLOSE),
    ("how_jit_works", "have more than {:,} entries, outputs", verify.MOST_ENTRIES),
    ("how_jit_works", "are verified on {} entries", 4 * verify.BLOCK),
    ("how_jit_works", "Up to {:,} entries all outputs are compared", verify.ROUGHLY),
    ("how_jit_works", "loops of more than {} equations run", verify.MOST_STEPS),
    ("sparse", "goes all ways, at most {} of them", staged_paths.MOST),
    ("sparse", "the last {} are kept", WORDS[api.KEPT]),
    ("sparse", "where they would take more than {} MiB", compressed.BUDGET // MIB),
    ("matrices", "(`\"mixed\"`, from {} directions on)", waist.LEAST),
    ("matrices", "there would be {} of them or more", directions.BATCHES),
    ("matrices", "from {} directions on.", directions.LEAST),
    ("matrices", "to take more than {:.0f} seconds in Python", batches.COMPILED / 1e9),
    ("matrices", "would take more than {} MiB together", batches.STAGED // MIB),
    ("design", "From {:,} entries on, stretches", sizes.LARGE),
    ("design", "in blocks of {:,}, so that", sizes.BLOCK),
    ("design", "From {:,} on, NumPy's own ufunc loops", sizes.PARALLEL),
    ("design", "the like serve from {} entries on", sizes.VALUES),
    ("design", "Arrays up to {} KiB are copied", tracer.COPIED // KIB),
    ("design", "by bytes up to {} KiB", checksum.LARGE // KIB),
    ("design", "adds a path; up to {} are kept", jit.MOST),
    ("one_call", "an array of up to {} KiB is copied", tracer.COPIED // KIB),
    ("one_call", "entries of {:,} numbers and more are walked", sizes.LARGE),
    ("one_call", "by a kernel of ours from {} entries on", sizes.VALUES),
    ("development/eager", "From {:,} elements on, elementwise ops may be", sizes.PARALLEL),
    ("development/eager", "and from {:,} on the backward walks", sizes.LARGE),
    ("development/eager", "are compiled from {:,} elements on", sizes.NATIVE),
    ("development/eager", "and, from {:,} on, Cholesky factors", sizes.SYSTEM),
    ("development/eager", "of a stretch of the backward, up to {} of them", cotangents.MOST),
    ("development/eager", "They pay from {} elements on (`sizes.PASSES`)", sizes.PASSES),
    ("development/eager", "on rows of {} to 4,096", sizes.NARROWEST),
    ("development/eager", "on rows of 8 to {:,}", sizes.WIDEST),
    ("development/eager", "only scale rows from {:,} on", sizes.SCALED),
    ("development/eager", "number by number, from {} entries on", sizes.VALUES),
    ("development/eager", "adds up rows of fewer than {} as columns", plain.SHORT),
    ("development/eager", "adds up those of 8 to {} (`large.row_sums`)", sizes.SHORT),
    ("development/eager", "So arrays are copied up to {} KiB", tracer.COPIED // KIB),
    ("development/compiled", "on rows of up to {} entries, column", columns.WIDTH),
    ("development/compiled", "at least {} such equations", WORDS[columns.CROSSINGS]),
    ("development/compiled", "Programs of fewer than {:,} rows stay", columns.ROWS),
    ("development/compiled", "more than {} times as many equations", WORDS[columns.GROWTH]),
    ("development/compiled", "so from {} calls on a loop reads them", shared_text.LEAST_CALLS),
    ("development/compiled", "at least {} such functions", WORDS[shared_text.LEAST_ALIKE]),
    ("development/compiled", "cut into kernels of {} operations", schedule.MOST_NODES),
    ("development/compiled", "its bytes up to {} KiB, by a checksum", checksum.LARGE // KIB),
    ("development/compiled", "products of more than {} million multiply-adds", gemm.MOST // 10**6),
    ("development/compiled", "of up to {} rows are equations", WORDS[expand.ROWS]),
    ("development/compiled", "if it has {} times as many as columns", WORDS[tiles.TALL]),
    ("development/compiled", "Such a group has tiles of {} KB", sizes.PANEL // KIB),
    ("development/compiled", "a tile has at least {} rows", tiles.FEWEST),
    ("development/compiled", "take at most {} MB together", sizes.ROOMS // MIB),
    ("development/compiled", "form a chain of {} or more", shared_text.CHAIN),
    ("development/derivatives", "run a step more than {} times are refused", revolve.MOST),
    ("development/derivatives", "this is done from {} directions on", directions.LEAST),
    ("development/derivatives", "serves {} directions or more", WORDS[directions.SERVED]),
    ("development/derivatives", "so there must be {} or more", directions.BATCHES),
    ("parallel", "{} parts are added by one task", WORDS[shards.FAN_IN]),
]
