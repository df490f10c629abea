"""State dicts of modules, and the hooks around them and around gradients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from functrans.torch._graph.modes import no_grad
from functrans.torch._graph.nodes import RemovableHandle
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd.function import Function

# ---- How the backward hooks of a module learn of its gradients


def as_tuple(x: Any) -> tuple:
    """``x``, or a tuple of it alone."""
    return x if isinstance(x, tuple) else (x,)


class BackwardHookFunction(Function):
    """The tensors themselves; ``watch`` is told of their gradients."""

    @staticmethod
    def forward(ctx: Any, seen: Callable, *xs: Tensor) -> tuple:
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        return tuple([x.view_as(x) for x in xs])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return None, *ctx.seen(grads)


class Watch:
    """Calls the backward hooks of a module, for one call of it."""

    def __init__(self, module: Any):
        self.module = module
        self.outputs: tuple = ()
        self.inputs = False

    def enter(self, args: tuple) -> tuple:
        """The arguments, whose gradients are those of the module."""
        places = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        self.inputs = bool(places)
        self.count = len(args)
        self.places = places
        if not places:
            return args
        passed = BackwardHookFunction.apply(self.gradients_of_inputs, *[args[i] for i in places])
        new = list(args)
        for i, x in zip(places, as_tuple(passed), strict=True):
            new[i] = x
        return tuple(new)

    def leave(self, result: Any) -> Any:
        """The result, whose gradients reach the module."""
        many = list(result) if isinstance(result, tuple | list) else [result]
        places = [i for i, x in enumerate(many) if isinstance(x, Tensor) and x.requires_grad]
        if not places:
            return result
        passed = BackwardHookFunction.apply(self.gradients_of_outputs, *[many[i] for i in places])
        for i, x in zip(places, as_tuple(passed), strict=True):
            many[i] = x
        return type(result)(many) if isinstance(result, tuple | list) else many[0]

    def gradients_of_outputs(self, grads: tuple) -> tuple:
        for hook in list(self.module._backward_pre_hooks.values()):
            new = hook(self.module, grads)
            grads = grads if new is None else as_tuple(new)
        self.outputs = grads
        if not self.inputs:
            self.call((None,) * max(self.count, 1))
        return grads

    def gradients_of_inputs(self, grads: tuple) -> tuple:
        whole: list = [None] * self.count
        for i, g in zip(self.places, grads, strict=True):
            whole[i] = g
        whole = list(self.call(tuple(whole)))
        return tuple([whole[i] for i in self.places])

    def call(self, grads: tuple) -> tuple:
        for hook in list(self.module._backward_hooks.values()):
            new = hook(self.module, grads, self.outputs)
            grads = grads if new is None else as_tuple(new)
        return grads


# ---- State dicts of modules, and the hooks around them

STATE_HOOKS = ("_state_dict_pre_hooks", "_state_dict_hooks", "_load_state_dict_pre_hooks",
               "_load_state_dict_post_hooks")
_EXTRA = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    """What ``load_state_dict`` returns: names that only the module, or only the dict, has."""

    missing_keys: list
    unexpected_keys: list

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self[0]}, unexpected_keys={self[1]})"


class Stateful:
    """The part of ``Module`` that hands out its state, and takes one."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    _state_dict_pre_hooks: dict[int, Callable]
    _state_dict_hooks: dict[int, Callable]
    _load_state_dict_pre_hooks: dict[int, Callable]
    _load_state_dict_post_hooks: dict[int, Callable]
    named_modules: Callable[..., Iterator]

    def get_extra_state(self) -> Any:
        """What a state dict keeps beside parameters and buffers; give it with
        ``set_extra_state``."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be "
                           "called: it is for classes that define it")

    def set_extra_state(self, state: Any) -> None:
        """Take over what ``get_extra_state`` returned."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be "
                           "called: it is for classes that define it")

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "",
                   keep_vars: bool = False) -> dict[str, Any]:
        """All parameters and buffers by dotted names, without history and on the same memory."""
        out = OrderedDict() if destination is None else destination
        for module, lead in self._places(prefix):
            for hook in list(module._state_dict_pre_hooks.values()):
                hook(module, lead, keep_vars)
            for name, x in module._entries():
                out[lead + name] = x if keep_vars else x.detach()
            if type(module).get_extra_state is not Stateful.get_extra_state:
                out[lead + _EXTRA] = module.get_extra_state()
        for module, lead in reversed(list(self._places(prefix))):  # parts before the whole
            for hook in list(module._state_dict_hooks.values()):
                out = hook(module, out, lead, {}) or out
        return out

    def _places(self, prefix: str = "") -> Iterator[tuple[Any, str]]:
        """The modules below it and itself, with what their names begin with."""
        for path, module in self.named_modules(None, prefix.rstrip("."), False):
            yield module, f"{path}." if path else ""

    def _entries(self) -> Iterator[tuple[str, Tensor]]:
        """Its own parameters and buffers that belong to its state."""
        for name, x in [*self._parameters.items(), *self._buffers.items()]:
            if x is not None and name not in self._non_persistent_buffers_set:
                yield name, x

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True,
                        assign: bool = False) -> _IncompatibleKeys:
        """Write the tensors of ``state_dict`` to the parameters and buffers of those names."""
        result, wrong, given = _IncompatibleKeys([], []), [], dict(state_dict)
        known = set()
        for module, lead in self._places():
            for hook in list(module._load_state_dict_pre_hooks.values()):
                hook(module, given, lead, {}, strict, *result, wrong)
            own = {lead + name: x for name, x in module._entries()}
            known |= own.keys()
            if type(module).set_extra_state is not Stateful.set_extra_state:
                known.add(lead + _EXTRA)
                if lead + _EXTRA in given:
                    module.set_extra_state(given[lead + _EXTRA])
                else:
                    result.missing_keys.append(lead + _EXTRA)
            for name, x in own.items():
                _load(name, x, given, assign, result, wrong)
        result.unexpected_keys.extend([k for k in given if k not in known])
        for module, _ in self._places():
            for hook in list(module._load_state_dict_post_hooks.values()):
                hook(module, result)
        if strict and result.unexpected_keys:
            wrong.insert(0, f"Unexpected key(s) in state_dict: {_quote(result.unexpected_keys)}.")
        if strict and result.missing_keys:
            wrong.insert(0, f"Missing key(s) in state_dict: {_quote(result.missing_keys)}.")
        if wrong:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t"
                               + "\n\t".join(wrong))
        return result

    # ---- hooks

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, prefix, keep_vars)`` before its part of a state dict is made."""
        return RemovableHandle.enter(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after it is made."""
        return RemovableHandle.enter(self._state_dict_hooks, hook)

    _register_state_dict_hook = register_state_dict_post_hook

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before its part is loaded."""
        return RemovableHandle.enter(self._load_state_dict_pre_hooks, hook)

    def _register_load_state_dict_pre_hook(self, hook: Callable,
                                           with_module: bool = False) -> RemovableHandle:
        return self.register_load_state_dict_pre_hook(
            hook if with_module else lambda module, *args: hook(*args))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(module, incompatible_keys)``, which may change these, after loading."""
        return RemovableHandle.enter(self._load_state_dict_post_hooks, hook)


def _load(name: str, x: Tensor, given: Mapping[str, Any], assign: bool, result: _IncompatibleKeys,
          wrong: list[str]) -> None:
    """Write one entry, or say why not."""
    if name not in given:
        result.missing_keys.append(name)
    elif given[name].shape != x.shape:
        wrong.append(f"size mismatch for {name}: copying a param with shape {given[name].shape} "
                     f"from checkpoint, the shape in current model is {x.shape}.")
    elif assign:
        x.data = given[name].detach()
    else:
        with no_grad():
            x.copy_(given[name])


def _quote(names: list) -> str:
    return ", ".join([f'"{n}"' for n in names])
