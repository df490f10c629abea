"""Tests; the environment of the libraries is set here, before NumPy is imported, which reads it."""

import os

# each worker has one core: BLAS's own threads would wait for one another most of the time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
