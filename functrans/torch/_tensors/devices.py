"""Devices, of which there is one, and memory formats, which change nothing."""

from __future__ import annotations

from typing import Any

from functrans.torch._tensors.layouts import Constant

# Kinds that programs name; one that is not among them is misspelt.
_KINDS = ("cpu", "cuda", "mps", "xpu", "meta", "hip", "xla", "vulkan", "mtia", "hpu", "ipu")
_NAMES = ("cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
          "vulkan, mps, meta, hpu, mtia, privateuseone")


class device:
    """The name of a place where tensors live: ``device("cpu")``, ``device("cuda", 1)``.

    A name of another device than the CPU is only a name. What is asked to put a tensor there
    raises.

    >>> device("cuda:1").index
    1
    """

    __slots__ = ("index", "type")

    type: str
    index: int | None

    def __init__(self, name: Any, index: int | None = None):
        if isinstance(name, device):
            name = str(name)
        if isinstance(name, int):
            name, index = "cuda", name
        if not isinstance(name, str):
            raise TypeError(f"device: the name is a str, but got {type(name).__name__}")
        kind, _, number = name.partition(":")
        if kind not in _KINDS:
            raise RuntimeError(
                f"Expected one of {_NAMES} device type at start of device string: {name}"
            )
        if number and (index is not None or not number.isdigit()):
            raise RuntimeError(f"Invalid device string: '{name}'; one index is a number after ':'")
        object.__setattr__(self, "type", kind)
        object.__setattr__(self, "index", int(number) if number else index)

    def __enter__(self) -> device:
        if self.type != "cpu":
            raise RuntimeError(f"device: there is no {self.type} here, so that tensors cannot be "
                               "made there")
        return self

    def __exit__(self, *failure: Any) -> None:
        pass

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"device: {name} cannot be set; make another device")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple:
        return device, (str(self),)


CPU = device("cpu")


class memory_format(Constant):
    """An order of the axes in memory. It is accepted, and everything stays in row order."""

    __slots__ = ()


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format(
    "preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
