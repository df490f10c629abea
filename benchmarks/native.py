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
         "-fdisable-tree-sincos", "-fPIC")
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

/* Jacobian of bundle adjustment, two rows for each of n observations: by the 11 numbers of a camera
   but the middle in the other direction, and the 3 of a point. */
void bundle(long n, const long *restrict who, const long *restrict what,
            const double *restrict cameras, const double *restrict points, double *restrict out) {
    for (long i = 0; i < n; i++) {
        const double *c = cameras + 11 * who[i], *x = points + 3 * what[i];
        double d[3], a[3], t[3], td[3][3], tr[3][3], across[3], along = 0.0;
        double square = c[0] * c[0] + c[1] * c[1] + c[2] * c[2] + 1e-12, angle = sqrt(square);
        double s = sin(angle), k = cos(angle), m = 1.0 - k;
        for (int j = 0; j < 3; j++) {
            d[j] = x[j] - c[3 + j];
            a[j] = c[j] / angle;
            along += a[j] * d[j];
        }
        for (int j = 0; j < 3; j++) {
            int p = (j + 1) % 3, q = (j + 2) % 3;
            across[j] = a[p] * d[q] - a[q] * d[p];
            t[j] = d[j] * k + across[j] * s + a[j] * along * m;
        }
        double z = 1.0 / t[2], u = t[0] * z, v = t[1] * z, r = u * u + v * v;
        double g = 1.0 + r * (c[9] + r * c[10]), h = 2.0 * (c[9] + 2.0 * r * c[10]);
        for (int j = 0; j < 3; j++)
            for (int l = 0; l < 3; l++) {
                int o = 3 - j - l;
                double sign = (l - j + 3) % 3 == 1 ? 1.0 : -1.0;
                double ax = j == l ? 0.0 : -sign * a[o], dx = j == l ? 0.0 : sign * d[o];
                td[j][l] = (j == l ? k : 0.0) + ax * s + a[j] * a[l] * m;
                tr[j][l] = dx * s + m * ((j == l ? along : 0.0) + a[j] * d[l]);
            }
        for (int j = 0; j < 3; j++) {
            double by_angle = -d[j] * s + across[j] * k + a[j] * along * s;
            double dot = tr[j][0] * a[0] + tr[j][1] * a[1] + tr[j][2] * a[2];
            for (int l = 0; l < 3; l++)
                tr[j][l] = by_angle * a[l] + (tr[j][l] - dot * a[l]) / angle;
        }
        double f = c[6], uu = f * (g + h * u * u), uv = f * h * u * v, vv = f * (g + h * v * v);
        double *row = out + 26 * i, *next = row + 13;
        for (int l = 0; l < 3; l++) {
            double du = (tr[0][l] - u * tr[2][l]) * z, dv = (tr[1][l] - v * tr[2][l]) * z;
            double eu = (td[0][l] - u * td[2][l]) * z, ev = (td[1][l] - v * td[2][l]) * z;
            row[l] = uu * du + uv * dv;
            next[l] = uv * du + vv * dv;
            row[10 + l] = uu * eu + uv * ev;
            next[10 + l] = uv * eu + vv * ev;
            row[3 + l] = -row[10 + l];
            next[3 + l] = -next[10 + l];
        }
        row[6] = u * g, next[6] = v * g;
        row[7] = next[7] = 1.0;
        row[8] = f * u * r, next[8] = f * v * r;
        row[9] = f * u * r * r, next[9] = f * v * r * r;
    }
}
"""


@functools.cache
def library() -> ctypes.CDLL | None:
    """The functions above, compiled; None without gcc."""
    if shutil.which("gcc") is None:
        return None
    with tempfile.TemporaryDirectory() as place:
        source, made, built = (str(Path(place, f"native.{end}")) for end in ("c", "o", "so"))
        Path(source).write_text(SOURCE)
        # linked under -ffast-math, a library makes the process that loads it flush denormals to 0
        for command in (["gcc", *FLAGS, "-c", source, "-o", made],
                        ["gcc", "-shared", made, "-o", built, "-lmvec", "-lm"]):
            if subprocess.run(command, capture_output=True).returncode:
                return None
        return ctypes.CDLL(built)


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


def bundle(who: np.ndarray, what: np.ndarray, camera: np.ndarray, point: np.ndarray
           ) -> Callable | None:
    """The entries of the Jacobian of ``workloads.bundle``'s residuals, row by row."""
    if (lib := library()) is None:
        return None
    index = [np.ascontiguousarray(i, np.int64) for i in (who, what)]

    def entries():
        out = np.empty(26 * len(who))
        lib.bundle(ctypes.c_long(len(who)), *map(_at, (*index, camera, point, out)))
        return out

    return entries
