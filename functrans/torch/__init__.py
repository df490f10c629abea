"""``torch``'s names on NumPy: tensors that record their history, and ``backward``.

>>> import functrans.torch as torch
>>> x = torch.ones(2, 2, requires_grad=True)
>>> z = (x + 2) * (x + 2) * 3
>>> z.mean().backward()
>>> x.grad
tensor([[4.5000, 4.5000],
        [4.5000, 4.5000]])

From the bottom up: ``dtypes`` and ``modes``; ``graph``, the nodes and how NumPy code is recorded;
``tensor``; ``engine``, the walk backward; ``views`` and what changes them; ``table``, how functions
are made, ``rows`` and ``inplace``; then the functions themselves. See docs/torch.md.
"""

from __future__ import annotations

from math import e, inf, nan, pi

from functrans.torch import (
    _C,
    _environment,
    _six,
    accelerator,
    amp,
    autograd,
    backends,
    compiler,
    cuda,
    distributions,
    fft,
    func,
    jit,
    library,
    linalg,
    nn,
    optim,
    overrides,
    profiler,
    random,
    signal,
    sparse,
    special,
    testing,
    types,
    utils,
    version,
)
from functrans.torch._batching import vmap
from functrans.torch._functions import (
    algebra,
    calculus,
    elementwise,
    fourier,
    indexing,
    joining,
    memory_views,
    order,
    reductions,
    sampling,
    scattering,
    shapes,
    synonyms,
    systems,
    table,
)
from functrans.torch._functions import (
    special as parts,
)
from functrans.torch._graph import engine, overriding
from functrans.torch._graph.engine import tensor_backward
from functrans.torch._graph.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from functrans.torch._graph.nodes import Node, Shown
from functrans.torch._names import absent
from functrans.torch._tensors import dtypes, factories, memory
from functrans.torch._tensors import sparse as _sparse
from functrans.torch._tensors.dtypes import (
    Size,
    bfloat16,
    cdouble,
    cfloat,
    channels_last,
    channels_last_3d,
    complex64,
    complex128,
    contiguous_format,
    device,
    double,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int8,
    int16,
    int32,
    int64,
    layout,
    long,
    memory_format,
    preserve_format,
    promote_types,
    set_default_dtype,
    short,
    sparse_coo,
    strided,
    uint8,
)
from functrans.torch._tensors.memory import set_default_tensor_type
from functrans.torch._tensors.printing import finfo, iinfo, show_tensor
from functrans.torch._tensors.random import FUNCTIONS as _RANDOM
from functrans.torch._tensors.random import Generator, default_generator
from functrans.torch._tensors.sparse import sparse_coo_tensor
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.amp import autocast
from functrans.torch.autograd.anomaly_mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from functrans.torch.install import install
from functrans.torch.library import ops
from functrans.torch.serialization import load, save
from functrans.torch.utils.dlpack import from_dlpack, to_dlpack

__version__ = version.__version__
bool, int, float = dtypes.bool_, dtypes.int32, dtypes.float32
newaxis = None


def is_tensor(obj: object) -> object:
    """Whether ``obj`` is a tensor."""
    return isinstance(obj, Tensor)


def result_type(*xs: object) -> dtype:
    """The type of an operation on tensors and numbers."""
    operands = [x._array if isinstance(x, Tensor) else dtypes.number(x) for x in xs]
    return dtypes.BY_ARRAY_DTYPE[dtypes.result_dtype(operands)]


__all__ = [
    "Generator", "Size", "Tensor", "accelerator", "amp", "autocast", "autograd", "backends",
    "bfloat16", "bool", "cdouble", "cfloat", "channels_last", "channels_last_3d", "compiler",
    "complex64", "complex128", "contiguous_format", "cuda", "default_generator", "device",
    "distributions", "double", "dtype", "e", "enable_grad", "fft", "finfo", "float", "float16",
    "float32", "float64", "from_dlpack", "func", "get_default_dtype", "half", "iinfo", "inf",
    "inference_mode", "install", "int", "int8", "int16", "int32", "int64",
    "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled",
    "is_inference_mode_enabled", "is_tensor", "jit", "layout", "library", "linalg", "load",
    "long", "memory_format", "nan", "newaxis", "nn", "no_grad", "ops", "optim",
    "overrides", "pi", "preserve_format", "profiler", "promote_types", "random", "result_type",
    "save", "set_default_dtype", "set_default_tensor_type", "set_grad_enabled", "short", "signal",
    "sparse", "sparse_coo", "sparse_coo_tensor", "special", "strided", "testing", "to_dlpack",
    "types", "uint8", "utils", "version", "vmap",
]
__all__ += factories.NAMES
globals().update({
    _name: overriding.overridable(_f) if _name.endswith("_like") else _f
    for _name, _f in [(_name, getattr(factories, _name)) for _name in factories.NAMES]})
__all__ += [*memory.KINDS, *_environment.FUNCTIONS, *_RANDOM]
globals().update({**memory.KINDS, **_environment.FUNCTIONS, **_RANDOM})

# Tensor is below its operations, and gets them here. A method is a function too, except for
# conversions and operators.
Tensor.backward = tensor_backward  # type: ignore[method-assign]
Tensor.__repr__ = show_tensor  # type: ignore[method-assign,assignment]
Tensor._make_subclass = synonyms.make_subclass  # type: ignore[attr-defined]
Shown.__getattr__ = engine.saved_attribute  # type: ignore[attr-defined]
Node.__call__ = engine.pass_alone  # type: ignore[method-assign,assignment]
Node.__dir__ = engine.attribute_names  # type: ignore[method-assign,assignment]
for _name, _f in {**memory.METHODS, **memory.METHODS, **_sparse.METHODS}.items():
    setattr(Tensor, _name, _f)
for _name, _f in table.PROPERTIES.items():
    setattr(Tensor, _name, property(_f))
for _name, _f in table.METHODS.items():
    setattr(Tensor, _name, shapes.part(_f) if _name in ("real", "imag") else _f)
    if _name not in __all__ and _name not in shapes.CONVERSIONS and not _name.startswith("__"):
        globals()[_name] = table.publish(_name, _f)
        __all__.append(_name)
for _name, _f in table.FUNCTIONS.items():
    globals()[_name] = table.publish(_name, _f)
    __all__.append(_name)
for _method, _name in elementwise.OPERATORS.items():
    overriding.published[Tensor.__dict__[f"__{_method}__"]] = globals()[_name]
# what derived classes override: methods that do not ask for overriding objects themselves
overriding.methods.update({
    _name: vars(Tensor)[_name] for _name in (*table.METHODS, *table.PROPERTIES, "detach", "data")
    if not hasattr(vars(Tensor)[_name], "overridable")})

# for what they enter
assert algebra and calculus and elementwise and indexing and joining and order and reductions
assert systems and memory_views and parts and sampling and scattering and calculus and synonyms
assert systems and fourier
assert _C and _six  # which programs import by name

__getattr__ = absent(__name__)
