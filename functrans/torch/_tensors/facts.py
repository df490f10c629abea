"""What a tensor says of itself: its shape, type and place in memory, and its numbers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from functrans.extend import Tracer
from functrans.torch._graph.graph import Storage
from functrans.torch._graph.levels import known_numbers, require_entries
from functrans.torch._graph.modes import is_grad_enabled
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.dtypes import CPU, Size, device, layout, strided


class Memory:
    """The memory that a tensor and its views are on, of which there are no entries to be had."""

    def __init__(self, whole: Facts):
        self._whole = whole

    def __len__(self) -> int:
        return self._whole.numel()

    size = __len__

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._whole.nbytes

    def data_ptr(self) -> int:
        """The address of the first byte."""
        return self._whole.data_ptr()


class Facts:
    """The part of ``Tensor`` that reads its memory, and not its place in the graph."""

    _array: np.ndarray
    _storage: Storage
    _base: Any
    _turned: bool

    _inference = False  # it was made in ``inference_mode``

    # what there is none of
    is_cpu = True
    is_sparse = is_cuda = is_quantized = is_mkldnn = is_meta = is_mps = is_xpu = False
    is_xla = is_ipu = is_hpu = is_vulkan = is_maia = is_mtia = False
    is_nested = is_sparse_csr = False
    layout: layout = strided
    device: device = CPU

    if TYPE_CHECKING:
        requires_grad: Any

    @property
    def shape(self) -> Size:
        return Size(self._array.shape)

    def size(self, dim: int | None = None) -> Any:
        """The lengths of the axes, or that of one."""
        return Size(self._array.shape) if dim is None else self._array.shape[dim]

    @property
    def dtype(self) -> dtypes.dtype:
        return dtypes.BY_ARRAY_DTYPE[self._array.dtype]

    @property
    def ndim(self) -> int:
        return self._array.ndim

    def dim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return self._array.size

    nelement = numel

    @property
    def itemsize(self) -> int:
        return self._array.itemsize

    def element_size(self) -> int:
        """The number of bytes of an element."""
        return self._array.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    def stride(self, dim: int | None = None) -> Any:
        """How many elements apart neighbours along each axis lie."""
        steps = tuple([n // self._array.itemsize for n in self._array.strides])
        return steps if dim is None else steps[dim]

    def storage_offset(self) -> int:
        """Where in the memory of its base the first element lies."""
        if self._base is None:
            return 0
        return (self.data_ptr() - self._base.data_ptr()) // self._array.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._array.__array_interface__["data"][0]

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie in row-major order without gaps."""
        return isinstance(self._array, Tracer) or self._array.flags.c_contiguous

    def get_device(self) -> int:
        """The number of its device: -1, which is the CPU."""
        return -1

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether there are negative numbers of its type."""
        return self._array.dtype.kind not in "ub"

    def is_conj(self) -> bool:
        """False: ``conj`` computes."""
        return False

    is_neg = is_distributed = is_pinned = is_shared = is_conj

    def is_same_size(self, other: Facts) -> bool:
        """Whether ``other`` has the same shape."""
        return self._array.shape == other._array.shape

    def is_inference(self) -> bool:
        """Whether it was made in ``inference_mode``."""
        return self._inference

    def is_set_to(self, tensor: Facts) -> bool:
        """Whether ``tensor`` has the same shape on the same memory."""
        a, b = self._array, tensor._array
        return (a.shape, a.strides, self.data_ptr()) == (b.shape, b.strides, tensor.data_ptr())

    def _is_view(self) -> bool:
        return self._base is not None and not self._turned

    @property
    def names(self) -> tuple:
        return (None,) * self._array.ndim

    def has_names(self) -> bool:
        """False: dimensions have no names."""
        return False

    @property
    def volatile(self) -> bool:
        warnings.warn(
            "volatile was removed (Variable.volatile is always False); use no_grad", stacklevel=2)
        return False

    def storage(self) -> Memory:
        """What can be asked of the memory; ``numpy()`` is the memory itself."""
        return Memory(self if self._base is None else self._base)

    untyped_storage = storage

    @property
    def _version(self) -> int:
        if self._inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage.version

    def __dlpack__(self, **options: Any) -> object:
        """A capsule with the memory, for other libraries of arrays."""
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple:
        """The CPU, as other libraries of arrays name it."""
        return self._array.__dlpack_device__()

    def __len__(self) -> int:
        if not self._array.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise RuntimeError(
                "Boolean value of Tensor with "
                f"{'more than one value' if self._array.size else 'no values'} is ambiguous; "
                "use .any() or .all()"
            )
        return bool(self._array.reshape(())[()])

    def is_nonzero(self) -> bool:
        """Whether its one entry is not zero."""
        return bool(self)

    def item(self) -> Any:
        """The one element as a Python number."""
        if self._array.size != 1:
            raise RuntimeError(
                f"a Tensor with {self._array.size} elements cannot be converted to Scalar"
            )
        array = known_numbers(self._array)
        if array.dtype == dtypes.BFLOAT16:
            return float(array.reshape(())[()])
        return array.item()

    def _number(self) -> Any:
        """The one element, as ``float`` and the like ask for it."""
        if self._array.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars, and "
                             f"this one has {self._array.size}")
        return self.item()

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    def __complex__(self) -> complex:
        return complex(self._number())

    def __index__(self) -> int:
        if self._array.size != 1 or self._array.dtype.kind not in "iub":
            raise TypeError(
                "only integer tensors of a single element can be converted to an index"
            )
        return int(self._array.reshape(())[()])

    def __format__(self, spec: str) -> str:
        from_number = self._array.ndim == 0 and (type(self).__name__ == "Tensor" or spec)
        if not from_number and spec:
            raise TypeError(f"unsupported format string passed to {type(self).__name__}.__format__")
        return format(self.item(), spec) if from_number else repr(self)

    def tolist(self) -> Any:
        """Nested lists of Python numbers."""
        array = known_numbers(self._array)
        return (array.astype(np.float32) if array.dtype == dtypes.BFLOAT16 else array).tolist()

    # ---- NumPy

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The ndarray on the same memory; what changes one changes the other."""
        if self.requires_grad and is_grad_enabled() and not force:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. "
                "Use tensor.detach().numpy() instead."
            )
        require_entries("numpy()")
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.numpy(), dtype, copy=copy)
