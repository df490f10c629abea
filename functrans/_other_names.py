"""What names of other libraries are called here, for the error that an absent name raises."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NoReturn

import numpy as np

# Modules of JAX whose names are NumPy's, SciPy's or ours: what to write for those that differ.
MODULES: dict[str, dict[str, str]] = {
    "nn": {
        "celu": "np.maximum(x, 0) + a * np.expm1(np.minimum(x, 0) / a)",
        "elu": "np.where(x > 0, x, a * np.expm1(x))",
        "gelu": "x * scipy.special.ndtr(x)",
        "glu": "a * scipy.special.expit(b), where a, b = np.split(x, 2, axis)",
        "hard_sigmoid": "np.clip(x / 6 + 0.5, 0, 1)",
        "hard_tanh": "np.clip(x, -1, 1)",
        "leaky_relu": "np.where(x >= 0, x, slope * x)",
        "log_sigmoid": "scipy.special.log_expit(x)",
        "log_softmax": "functrans.scipy.special.log_softmax(x, axis=-1)",
        "logsumexp": "functrans.scipy.special.logsumexp(x, axis)",
        "mish": "x * np.tanh(np.logaddexp(x, 0))",
        "one_hot": "np.eye(n)[i]",
        "relu": "np.maximum(x, 0)",
        "relu6": "np.clip(x, 0, 6)",
        "selu": "1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))",
        "sigmoid": "scipy.special.expit(x)",
        "silu": "x * scipy.special.expit(x)",
        "soft_sign": "x / (1 + np.abs(x))",
        "softmax": "functrans.scipy.special.softmax(x, axis=-1)",
        "softplus": "np.logaddexp(x, 0)",
        "sparse_plus": "np.where(x > 1, x, np.maximum(x + 1, 0) ** 2 / 4)",
        "squareplus": "(x + np.sqrt(x * x + b)) / 2",
        "standardize": "(x - x.mean(axis, keepdims=True)) / x.std(axis, keepdims=True)",
        "swish": "x * scipy.special.expit(x)",
    },
    "lax": {
        "acos": "np.arccos",
        "acosh": "np.arccosh",
        "asin": "np.arcsin",
        "asinh": "np.arcsinh",
        "atan": "np.arctan",
        "atan2": "np.arctan2",
        "atanh": "np.arctanh",
        "ceil": "np.ceil",
        "bitcast_convert_type": "x.view(dtype)",
        "broadcast_in_dim": "np.broadcast_to and np.expand_dims",
        "clamp": "np.clip(x, low, high)",
        "complex": "x + 1j * y",
        "concatenate": "np.concatenate",
        "conj": "np.conj",
        "conv": "functrans.scipy.signal.convolve",
        "conv_general_dilated": "functrans.scipy.signal.convolve",
        "convert_element_type": "x.astype(dtype)",
        "cumlogsumexp": "np.logaddexp.accumulate",
        "cummax": "np.maximum.accumulate",
        "cummin": "np.minimum.accumulate",
        "digamma": "scipy.special.digamma",
        "div": "np.divide",
        "dot_general": "np.einsum",
        "dynamic_index_in_dim": "x[i]",
        "dynamic_slice": "x[i:i + n]",
        "dynamic_slice_in_dim": "x[i:i + n]",
        "dynamic_update_index_in_dim": "x.at[i].set(v), or x[i] = v",
        "dynamic_update_slice": "x.at[i:i + n].set(v), or x[i:i + n] = v",
        "dynamic_update_slice_in_dim": "x.at[i:i + n].set(v), or x[i:i + n] = v",
        "erf": "scipy.special.erf",
        "erf_inv": "scipy.special.erfinv",
        "erfc": "scipy.special.erfc",
        "eq": "np.equal",
        "ge": "np.greater_equal",
        "gt": "np.greater",
        "le": "np.less_equal",
        "lt": "np.less",
        "ne": "np.not_equal",
        "full_like": "np.full_like",
        "gather": "x[i]",
        "integer_pow": "x ** n",
        "iota": "np.arange",
        "lgamma": "scipy.special.gammaln",
        "logistic": "scipy.special.expit",
        "max": "np.maximum",
        "min": "np.minimum",
        "mul": "np.multiply",
        "neg": "np.negative",
        "pow": "np.power",
        "psum": "np.sum(x, axis=0), as vmap has no names of axes",
        "pmean": "np.mean(x, axis=0), as vmap has no names of axes",
        "reduce_max": "np.max",
        "reduce_min": "np.min",
        "reduce_prod": "np.prod",
        "reduce_sum": "np.sum",
        "rem": "np.fmod",
        "rev": "np.flip",
        "rsqrt": "1 / np.sqrt(x)",
        "scatter": "x.at[i].set(v)",
        "scatter_add": "x.at[i].add(v)",
        "scatter_max": "x.at[i].max(v)",
        "scatter_min": "x.at[i].min(v)",
        "select": "np.where",
        "slice": "x[i:j:k]",
        "slice_in_dim": "x[i:j:k]",
        "sub": "np.subtract",
        "top_k": "np.sort(x)[..., ::-1][..., :k], and np.argsort for where they lie",
    },
    "ops": {
        "segment_max": "np.full(n, -np.inf), then .at[i].max(x)",
        "segment_min": "np.full(n, np.inf), then .at[i].min(x)",
        "segment_prod": "np.ones(n), then .at[i].multiply(x)",
    },
}
# Of the names of a module itself.
NAMES: dict[str, dict[str, str]] = {
    "functrans": {
        "block_until_ready": "nothing: calls return when they are done",
        "device_count": "nothing: there is one device, the CPU",
        "device_get": "np.asarray",
        "device_put": "np.asarray",
        "devices": "nothing: there is one device, the CPU",
        "disable_jit": "functrans.config(jit=False)",
        "flatten_util": "functrans.tree.ravel",
        "lower": "functrans.jit(f).lower",
        "make_hvp": "functrans.hvp",
        "make_jaxpr": "functrans.make_program",
        "make_jvp": "functrans.jvp",
        "make_vjp": "functrans.vjp",
        "named_call": "the function itself, whose lines messages name",
        "named_scope": "nothing: messages name the lines of the source",
        "pmap": "functrans.parallel",
        "profiler": "functrans.profile",
        "pure_callback": "functrans.external",
        "remat": "functrans.checkpoint",
        "rematerialize": "functrans.checkpoint",
        "shard_map": "functrans.parallel",
        "test_util": "functrans.testing",
        "tree_flatten": "functrans.tree.flatten",
        "tree_leaves": "functrans.tree.leaves",
        "tree_map": "functrans.tree.map",
        "tree_unflatten": "functrans.tree.unflatten",
        "tree_util": "functrans.tree",
    },
    "functrans.random": {
        "PRNGKey": "random.key",
        "ball": "a standard_normal vector divided by its norm, times random(key) ** (1 / n)",
        "cauchy": "np.tan(np.pi * (random.random(key) - 0.5))",
        "chisquare": "2 * random.gamma(key, df / 2)",
        "dirichlet": "random.gamma(key, alpha), divided by its sum",
        "key_data": "the key itself, an array of two words",
        "multivariate_normal": "mean + np.linalg.cholesky(cov) @ random.standard_normal(key, n)",
        "pareto": "np.exp(random.exponential(key) / b)",
        "rademacher": "2 * random.integers(key, 0, 2) - 1",
        "randint": "random.integers(key, low, high, size)",
        "shuffle": "random.permutation(key, x)",
        "t": "random.standard_normal(key1) / np.sqrt(2 * random.gamma(key2, df / 2) / df)",
        "weibull_min": "scale * random.exponential(key) ** (1 / concentration)",
    },
}


class Elsewhere:
    """A module of JAX's that is not here: each of its names raises an error that says what is."""

    def __init__(self, name: str, ours: Collection[str]):
        self.__name__ = name
        self._ours = ours

    def __repr__(self) -> str:
        return f"<names of jax.{self.__name__}, none of which is here>"

    def __getattr__(self, name: str) -> NoReturn:
        here = self.__name__
        if name.startswith("__"):
            raise AttributeError(f"functrans has no {here}.{name}", name=name, obj=self)
        alike = f"functrans.{name}" if name in self._ours else f"np.{name}"
        same = name in self._ours or hasattr(np, name)
        advice = MODULES[here].get(name) or (alike if same else "")
        nowhere = "its arrays are NumPy's, and so are its functions; docs/howto/jax.md has a table"
        hint = f"write {advice}" if advice else nowhere
        raise AttributeError(f"functrans has no {here}.{name}: {hint}", name=name, obj=self)


def absent(module: Any, name: str) -> AttributeError:
    """The error of a name that a module does not have: it says what to write instead."""
    advice = NAMES[module.__name__].get(name)
    hint = f"; write {advice}" if advice else ""
    return AttributeError(
        f"module {module.__name__!r} has no attribute {name!r}{hint}", name=name, obj=module
    )
