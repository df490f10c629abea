"""``Module``: parameters, buffers and modules under names, and a ``forward``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Self

from functrans.torch._graph.modes import is_grad_enabled, no_grad
from functrans.torch._graph.nodes import RemovableHandle
from functrans.torch._tensors import dtypes
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.states import STATE_HOOKS, Stateful, Watch, as_tuple
from functrans.torch.nn.parameter import Buffer, Parameter


class Module(Stateful):
    """A layer, or several: give ``forward``, and set parameters and modules as attributes.

    >>> from functrans import torch
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = torch.nn.Parameter(torch.tensor(3.0))
    ...     def forward(self, x):
    ...         return self.factor * x
    >>> scale = Scale()
    >>> scale(torch.ones(2))
    tensor([3., 3.], grad_fn=<MulBackward0>)
    >>> [name for name, p in scale.named_parameters()]
    ['factor']
    """

    training: bool
    _version = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = self.__dict__
        fields["training"] = True
        for name in ("_parameters", "_buffers", "_modules"):
            fields[name] = OrderedDict()
        fields["_non_persistent_buffers_set"] = set()
        for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
                     "_backward_pre_hooks", *STATE_HOOKS):
            fields[name] = OrderedDict()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ---- attributes

    def __setattr__(self, name: str, value: Any) -> None:
        fields = self.__dict__
        if isinstance(value, Parameter | Module):
            place = "_parameters" if isinstance(value, Parameter) else "_modules"
            if place not in fields:
                raise AttributeError(f"cannot assign {place[1:]} before Module.__init__() call")
            for other in {"_parameters", "_modules", "_buffers"} - {place}:
                fields[other].pop(name, None)
            fields.pop(name, None)
            fields[place][name] = value
            return
        if isinstance(value, Buffer):
            fields.pop(name, None)
            self.register_buffer(name, value, value.persistent)
        elif name in fields.get("_parameters", ()):
            if value is not None:
                what = value.type() if isinstance(value, Tensor) else type(value).__name__
                raise TypeError(f"cannot assign '{what}' as parameter '{name}' "
                                "(torch.nn.Parameter or None expected)")
            fields["_parameters"][name] = None
        elif name in fields.get("_buffers", ()):
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{type(value).__name__}' as buffer '{name}' "
                                "(torch.Tensor or None expected)")
            fields["_buffers"][name] = value
        elif name in fields.get("_modules", ()):
            if value is not None:
                raise TypeError(f"cannot assign '{type(value).__name__}' as child module '{name}' "
                                "(torch.nn.Module or None expected)")
            fields["_modules"][name] = None
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for place in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(place, {})
            if name in entries:
                return entries[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name: str) -> None:
        for place in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[place]:
                del self.__dict__[place][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    def _free(self, name: str, kind: str) -> None:
        """Raise where ``name`` cannot be that of a part: a parameter, buffer or module."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a part should be a string, not {type(name).__name__}")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if not name:
            raise KeyError(f'{kind} name can\'t be empty string ""')
        if hasattr(self, name) and name not in self.__dict__[f"_{kind}s"]:
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Enter a parameter; None for one that is absent."""
        self._free(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}' "
                            "(torch.nn.Parameter or None required)")
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Enter a tensor that is part of the state but is not trained."""
        self._free(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}' "
                            "(torch Tensor or None required)")
        self._buffers[name] = tensor
        if not persistent:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Enter a module."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._free(name, "module")
        self._modules[name] = module

    register_module = add_module

    # ---- its parts

    def named_modules(self, memo: set | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """(name, module) of itself and of all below it."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Itself and all modules below it."""
        return iter([m for _, m in self.named_modules()])

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of those directly below it."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly below it."""
        return iter([m for _, m in self.named_children()])

    def _named(self, place: str, prefix: str, recurse: bool,
               remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen: set = set()
        modules = self.named_modules(None, prefix) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, x in module.__dict__[place].items():
                if x is None or id(x) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(x))
                yield f"{path}.{name}" if path else name, x

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) of its own and, with ``recurse``, of those of modules below."""
        return self._named("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Its parameters and, with ``recurse``, those of modules below."""
        for _, p in self.named_parameters("", recurse):
            yield p

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(name, buffer) of its own and, with ``recurse``, of those of modules below."""
        return self._named("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Its buffers and, with ``recurse``, those of modules below."""
        for _, b in self.named_buffers("", recurse):
            yield b

    def get_submodule(self, target: str) -> Module:
        """The module under a dotted name."""
        module = self
        for name in target.split(".") if target else []:
            if not isinstance(getattr(module, name, None), Module):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
        return module

    def get_parameter(self, target: str) -> Parameter:
        """The parameter under a dotted name."""
        path, _, name = target.rpartition(".")
        return getattr(self.get_submodule(path), name)

    get_buffer = get_parameter

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module in the place of that under a dotted name."""
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module).__name__}")
        if strict and name not in parent._modules:
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        parent._modules[name] = module

    # ---- what is done with all parts

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call ``fn`` with each module below it, and with itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor]) -> Self:
        """Replace the memory of each parameter and buffer by what ``fn`` makes of it."""
        for module in self.modules():
            for p in module._parameters.values():
                if p is not None:
                    with no_grad():
                        p.data = fn(p.data)
                    if p.grad is not None:
                        p.grad = fn(p.grad.detach())
            for name, b in module._buffers.items():
                if b is not None:
                    module._buffers[name] = fn(b)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Floating-point parameters and buffers in another type."""
        def moved(t: Tensor) -> Tensor:
            y = t.to(*args, **kwargs)
            kept = t.is_floating_point() or t.is_complex()
            return y if kept and (y.is_floating_point() or y.is_complex()) else t

        return self._apply(moved)

    def type(self, dst_type: dtypes.dtype) -> Self:
        """All parameters and buffers in another type."""
        return self._apply(lambda t: t.to(dst_type))

    def float(self) -> Self:
        """Floating-point parameters and buffers in single precision."""
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """Floating-point parameters and buffers in double precision."""
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """Floating-point parameters and buffers in half precision."""
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """Floating-point parameters and buffers as bfloat16."""
        return self.to(dtypes.bfloat16)

    def cpu(self) -> Self:
        """The module itself: it is on the CPU."""
        return self

    def share_memory(self) -> Self:
        """The module itself: there is one process."""
        return self

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Accepted: code runs as it is written."""

    def to_empty(self, *, device: Any = None, recurse: bool = True) -> Self:
        """The parameters and buffers in new memory, whose entries are anything."""
        return self._apply(lambda t: t.new_empty(t.shape))

    def cuda(self, device: Any = None) -> Self:
        """An error: there is no such device."""
        return self.to("cuda")

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` of all modules."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        for module in self.modules():
            module.__dict__["training"] = mode
        return self

    def eval(self) -> Self:
        """Clear ``training`` of all modules."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Whether operations on the parameters are recorded."""
        for p in self.parameters():
            p.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or write zeros to them."""
        for p in self.parameters():
            if p.grad is not None:
                p.grad = None if set_to_none else p.grad.detach().zero_()

    # ---- calls and hooks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not (self._forward_hooks or self._forward_pre_hooks or self._backward_hooks
                or self._backward_pre_hooks):
            return self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_pre_hooks.values()):
            new = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if new is not None:
                args, kwargs = new if with_kwargs else (as_tuple(new), kwargs)
        watch = None
        if is_grad_enabled() and (self._backward_hooks or self._backward_pre_hooks):
            watch = Watch(self)
            args = watch.enter(args)
        result = self.forward(*args, **kwargs)
        for hook, with_kwargs in list(self._forward_hooks.values()):
            new = (hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result))
            result = result if new is None else new
        return result if watch is None else watch.leave(result)

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False,
                                  with_kwargs: bool = False) -> RemovableHandle:
        """Call ``hook(module, args)`` before each ``forward``; what it returns replaces them."""
        return RemovableHandle.enter(self._forward_pre_hooks, (hook, with_kwargs), prepend)

    def register_forward_hook(self, hook: Callable, *, prepend: bool = False,
                              with_kwargs: bool = False,
                              always_call: bool = False) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after each ``forward``."""
        return RemovableHandle.enter(self._forward_hooks, (hook, with_kwargs), prepend)

    def register_full_backward_hook(self, hook: Callable,
                                    prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when these gradients are known."""
        return RemovableHandle.enter(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable,
                                        prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's gradients are computed."""
        return RemovableHandle.enter(self._backward_pre_hooks, hook, prepend)

    # ---- how it prints

    def extra_repr(self) -> str:
        """What is shown between the parentheses."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def _shown(self) -> list[tuple[str, str]]:
        """The modules below it, by name, as they print."""
        return [(name, repr(module)) for name, module in self._modules.items()]

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [f"({name}): {text}" for name, text in self._shown()]
        if not below and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        inner = "\n".join([*lines, *below]).split("\n")
        return f"{self._get_name()}(\n" + "\n".join([f"  {t}" for t in inner]) + "\n)"
