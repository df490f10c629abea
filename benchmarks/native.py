"""Hand-written C, for what a compiled gradient could cost: built with gcc where there is one.

``-ffast-math`` is there because glibc declares its vector functions to gcc only under it; it also
lets gcc reorder sums and forget about NaN, which functrans never does. gcc would join the sine and
the cosine of one angle into a scalar call; the pass that does so is off.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-ffast-math",
         "-fdisable-tree-sincos", "-shared", "-fPIC")
SOURCE = r"""
#include <math.h>

void wave(long n, const double *restrict x, double *restrict g) {
    for (long i = 0; i < n; i++) {
        double v = x[i], s = v * v, e = exp(-s);
        g[i] = e * (3.0 * cos(3.0 * v) - 2.0 * v * sin(3.0 * v)) + 2.0 * v / (1.0 + s);
    }
}

/* Log-likelihood of n points of d numbers under k Gaussians, weights softmax(a), means m,
   inverse deviations exp(q); the gradient by a, m and q. */
void mixture(long n, long k, long d, const double *restrict a, const double *restrict m,
             const double *restrict q, const double *restrict x,
             double *restrict ga, double *restrict gm, double *restrict gq) {
    double p[k], w[k * d], base[k], total = 0.0;
    for (long j = 0; j < k; j++) total += exp(a[j]);
    for (long j = 0; j < k; j++) {
        ga[j] = -n * exp(a[j]) / total;
        base[j] = a[j];
        for (long c = 0; c < d; c++) base[j] += q[j * d + c];
    }
    for (long i = 0; i < k * d; i++) {
        w[i] = exp(2.0 * q[i]);
        gm[i] = gq[i] = 0.0;
    }
    for (long i = 0; i < n; i++) {
        double top = -INFINITY, sum = 0.0;
        for (long j = 0; j < k; j++) {
            double r = 0.0;
            for (long c = 0; c < d; c++) {
                double z = x[i * d + c] - m[j * d + c];
                r += w[j * d + c] * z * z;
            }
            p[j] = base[j] - 0.5 * r;
            top = p[j] > top ? p[j] : top;
        }
        for (long j = 0; j < k; j++) sum += p[j] = exp(p[j] - top);
        for (long j = 0; j < k; j++) {
            double r = p[j] / sum;
            ga[j] += r;
            for (long c = 0; c < d; c++) {
                double z = x[i * d + c] - m[j * d + c], wz = w[j * d + c] * z;
                gm[j * d + c] += r * wz;
                gq[j * d + c] += r * (1.0 - wz * z);
            }
        }
    }
}
"""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The functions above, compiled; None without gcc."""
    if shutil.which("gcc") is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        source, built = Path(place, "native.c"), Path(place, "native.so")
        source.write_text(SOURCE)
        command = ["gcc", *FLAGS, str(source), "-o", str(built), "-lmvec", "-lm"]
        run = subprocess.run(command, capture_output=True)
        return ctypes.CDLL(str(built)) if run.returncode == 0 else None


def _at(x: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def wave(x: np.ndarray) -> Callable | None:
    """The gradient of ``functions.wave``; a new array a call, as the others make one."""
    if (lib := library()) is None:
        return None
    n = ctypes.c_long(x.size)

    def gradient():
        g = np.empty_like(x)
        lib.wave(n, _at(x), _at(g))
        return g

    return gradient


def mixture(params: tuple, x: np.ndarray) -> Callable | None:
    """The gradient of ``functions.mixture`` by its three parameters."""
    if (lib := library()) is None:
        return None
    sizes = [ctypes.c_long(n) for n in (len(x), *params[1].shape)]

    def gradient():
        made = tuple(map(np.empty_like, params))
        lib.mixture(*sizes, *map(_at, (*params, x, *made)))
        return made

    return gradient
