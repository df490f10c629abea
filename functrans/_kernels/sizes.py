"""The sizes from which large arrays are processed apart; ``large.py`` says how.

Results depend on them only by rounding. They are read where they are used (``sizes.LARGE``), so
that a change of one reaches every use.
"""

# Entries of a block: just under 128 KB of float64, from where on malloc maps fresh pages.
BLOCK = 16000
# Entries from which working block by block beats working on whole arrays ...
LARGE = 1 << 17
# ... and from which threads pay, which wait for the interpreter lock less often on wider blocks.
THREADED, WIDE = 1 << 20, 1 << 17

# Entries from which native code pays for rows that NumPy makes several passes for; to compile
# it takes 10 to 60 ms. And entries of a matrix from which a system with it is worth a call of
# LAPACK's own. Neither is less than LARGE.
NATIVE = 1 << 20
SYSTEM = 1 << 17

# Entries from which a kernel of one pass pays, which is compiled once for all shapes: the first of
# a process takes 70 ms, and each call saves 2 to 8 us at this size. Widths of the rows that it
# takes.
PASSES, NARROWEST, WIDEST = 1 << 9, 8, 4096
# Entries from which rows are scaled by a kernel, where NumPy makes one pass too.
SCALED = 1 << 12

# Entries from which a ufunc may be worth sharing among native threads, and nanoseconds of its work
# from which it is: an empty call of what shares it takes 5,000.
PARALLEL, PARALLEL_WORK = 1 << 16, 20_000

# Products of entries from which a kernel multiplies by a sparse matrix.
SPARSE = 1 << 15

# Entries from which a kernel adds up rows, and entries of a row up to which: NumPy adds up those of
# more by halves.
ROWS, SHORT = 1 << 11, 128

# Entries from which a kernel takes the place of a ufunc that NumPy computes number by number.
VALUES = 3 << 8

# Bytes of an array from which memory is kept for the next ones.
KEPT = 1 << 15

# In native code. Bytes of a tile of what kernels share: well within the second-level cache.
TILE = 1 << 15
# Bytes of a row where a product of matrices takes part: no more than the second-level cache has.
# And of what all chunks together have for rows that are larger than a tile.
PRODUCTS, ROOMS = 1 << 20, 1 << 22
# Bytes of a tile that products of single matrices take part in: in the second-level cache.
PANEL = 1 << 18
# Bytes from which what is shared does not stay in the cache by itself.
SHARED = 1 << 17
# Estimated nanoseconds of work from which threads pay, and of a chunk; chunks at most.
WORK, CHUNK, CHUNKS = 250_000, 25_000, 64
# Chunks of a step from which Python's loop is not rolled up, since loops run on one thread.
APART = 40
