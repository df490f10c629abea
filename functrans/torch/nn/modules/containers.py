"""Modules of modules, and lists and dicts of parameters."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, Self, TypeVar

from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

T = TypeVar("T")


class _List(Module):
    """Parts by number."""

    _part = "_modules"

    def __init__(self, parts: Iterable[Any] | None = None):
        super().__init__()
        self.extend(parts or [])

    @property
    def _parts(self) -> list:
        return list(self.__dict__[self._part].values())

    def _set(self, parts: Iterable[Any]) -> None:
        self.__dict__[self._part].clear()
        self.extend(parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __getitem__(self, i: Any) -> Any:
        return type(self)(self._parts[i]) if isinstance(i, slice) else self._parts[i]

    def __setitem__(self, i: int, part: Any) -> None:
        parts = self._parts
        parts[i] = part
        self._set(parts)

    def __delitem__(self, i: int | slice) -> None:
        parts = self._parts
        del parts[i]
        self._set(parts)

    def append(self, part: Any) -> Self:
        """Add a part at the end."""
        if not isinstance(part, Module | Parameter) and part is not None:
            raise TypeError(f"{type(part).__name__} is not a Module subclass")
        setattr(self, str(len(self)), part)
        return self

    def extend(self, parts: Iterable[Any]) -> Self:
        """Add parts at the end."""
        for part in parts:
            self.append(part)
        return self

    def insert(self, index: int, part: Any) -> None:
        """Add a part before another."""
        parts = self._parts
        parts.insert(index, part)
        self._set(parts)

    __iadd__ = extend


class Sequential(_List):
    """Modules one after another.

    >>> from functrans import torch
    >>> torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=1, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *modules: Any):
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            super().__init__()
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Sequential(OrderedDict(list(self._modules.items())[i]))
        return self._parts[i]

    def __setitem__(self, i: int, part: Module) -> None:
        self._modules[list(self._modules)[i]] = part

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_List):
    """Modules in a list."""

    def _shown(self) -> list[tuple[str, str]]:
        """Neighbours that print alike are shown once."""
        out = []
        for text, group in itertools.groupby(super()._shown(), lambda pair: pair[1]):
            names = [name for name, _ in group]
            many = len(names) > 1
            out.append((f"{names[0]}-{names[-1]}", f"{len(names)} x {text}") if many
                       else (names[0], text))
        return out


class ParameterList(_List):
    """Parameters in a list."""

    _part = "_parameters"

    def append(self, part: Any) -> Self:
        """Add a parameter at the end."""
        part = part if isinstance(part, Parameter) else Parameter(part)
        self._parameters[str(len(self))] = part  # type: ignore[assignment]
        return self

    def extra_repr(self) -> str:
        return _listed(self._parameters, lambda p: str(p.dtype))


class _Dict(Module):
    """Parts by name."""

    _part = "_modules"

    def __init__(self, parts: Mapping[str, Any] | None = None):
        super().__init__()
        self.update(parts or {})

    def __getitem__(self, key: str) -> Any:
        return self.__dict__[self._part][key]

    def __setitem__(self, key: str, part: Any) -> None:
        self.__dict__[self._part][key] = part

    def __delitem__(self, key: str) -> None:
        del self.__dict__[self._part][key]

    def __len__(self) -> int:
        return len(self.__dict__[self._part])

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__[self._part])

    def __contains__(self, key: str) -> bool:
        return key in self.__dict__[self._part]

    def keys(self) -> KeysView[str]:
        """The names."""
        return self.__dict__[self._part].keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self.__dict__[self._part].values()

    def items(self) -> ItemsView[str, Any]:
        """Names and parts."""
        return self.__dict__[self._part].items()

    def update(self, parts: Mapping[str, Any]) -> None:
        """Enter parts under their names."""
        for name, part in parts.items():
            self[name] = part

    def pop(self, key: str) -> Any:
        """Take a part out."""
        part = self[key]
        del self[key]
        return part


class ModuleDict(_Dict):
    """Modules by name."""


class ParameterDict(_Dict):
    """Parameters by name."""

    _part = "_parameters"

    def update(self, parts: Mapping[str, Any]) -> None:
        """Enter parameters under their names, those of a plain dict in order of these."""
        plain = type(parts) is dict
        for name in sorted(parts) if plain else parts:
            self[name] = parts[name]

    def __setitem__(self, key: str, part: Any) -> None:
        part = part if isinstance(part, Parameter) else Parameter(part)
        self._parameters[key] = part  # type: ignore[assignment]

    def extra_repr(self) -> str:
        return _listed(self._parameters, lambda p: p.type())


def _listed(parameters: Mapping[str, Any], kind: Callable[[Any], str]) -> str:
    """Parameters by name, with their type and size."""
    return "\n".join([f"  ({name}): Parameter containing: [{kind(p)} of size "
                      f"{'x'.join(map(str, p.shape))}]" for name, p in parameters.items()])


class DataParallel(Module):
    """A module, which the CPU runs alone."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0):
        super().__init__()
        self.module, self.dim = module, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class Identity(Module):
    """Its input, whatever the arguments."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: T) -> T:
        return input
