"""``Optimizer``: groups of parameters, the state of each, and functions called around steps."""

from __future__ import annotations

import copy
import functools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from functrans.torch._functions.outputs import any_requires
from functrans.torch._graph.levels import require_no_leaf
from functrans.torch._graph.modes import enable_grad, no_grad, state
from functrans.torch._graph.nodes import RemovableHandle
from functrans.torch._graph.views import change
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array

# ---- Functions that an optimiser calls before and after its steps, and around its state dicts


def _hook(step: Callable) -> Callable:
    """``step`` between the hooks that are registered for it."""

    @functools.wraps(step)
    def call(self: Hooked, *args: Any, **kwargs: Any) -> Any:
        if not self._hooks:
            return step(self, *args, **kwargs)
        for hook in self.hooks("step_pre"):
            new = hook(self, args, kwargs)
            if new is not None:
                args, kwargs = new
        result = step(self, *args, **kwargs)
        for hook in self.hooks("step_post"):
            hook(self, args, kwargs)
        return result

    return call


class Hooked:
    """The part of ``Optimizer`` that keeps hooks; ``step`` of each class calls those for it."""

    # until one is registered, also in subclasses that do not call ``super().__init__``
    _hooks: Mapping[str, OrderedDict[int, Callable]] = MappingProxyType({})

    def __init_subclass__(cls) -> None:
        if "step" in vars(cls):
            cls.step = _hook(cls.step)  # type: ignore[attr-defined]  # it is among its names

    def hooks(self, moment: str) -> list[Callable]:
        """The hooks that are called at a moment, in order."""
        return list(self._hooks.get(moment, {}).values())

    def _register(self, moment: str, hook: Callable, prepend: bool = False) -> RemovableHandle:
        hooks = self._hooks.get(moment)
        if hooks is None:
            hooks = OrderedDict()
            self._hooks = {**self._hooks, moment: hooks}
        return RemovableHandle.enter(hooks, hook, prepend)

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return both anew."""
        return self._register("step_pre", hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return self._register("step_post", hook)

    def register_state_dict_pre_hook(self, hook: Callable,
                                     prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` before ``state_dict``."""
        return self._register("state_dict_pre", hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable,
                                      prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``, which may return another, after ``state_dict``."""
        return self._register("state_dict_post", hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable,
                                          prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer, state_dict)``, which may return another, before it is loaded."""
        return self._register("load_state_dict_pre", hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable,
                                           prepend: bool = False) -> RemovableHandle:
        """Call ``hook(optimizer)`` after ``load_state_dict``."""
        return self._register("load_state_dict_post", hook, prepend)


# ---- ``Optimizer``: groups of parameters with their options, and the state of each parameter

Closure = Callable[[], Any]


class _Required:
    """A default that stands for none: each group must say what the option is."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()
# options that other devices have a meaning for, and their defaults
_MEANINGLESS = {"foreach": None, "fused": None, "capturable": False, "differentiable": False}


class Optimizer(Hooked):
    """Base of optimisers: ``_update(array, gradient, state, group)`` changes one parameter.

    ``_shown``: those options without a meaning here that the groups have.
    """

    _shown = ""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of "
                            f"Tensors or dicts, but got {params.type()}")
        self.defaults = {**{k: _MEANINGLESS[k] for k in self._shown.split()}, **defaults}
        self.state: Any = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            named = isinstance(groups[0], tuple)
            groups = [{"params": [p for _, p in groups] if named else groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own."""
        group = dict(param_group)
        params = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        for p in group["params"]:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is "
                                f"{type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError("parameter group didn't specify a value of required optimization "
                                 f"parameter {name}")
            group.setdefault(name, default)
        seen = {id(p) for g in self.param_groups for p in g["params"]}
        if seen & {id(p) for p in group["params"]}:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or write zeros to them."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad = None if set_to_none else p.grad.detach().zero_()

    def step(self, closure: Closure | None = None) -> Any:
        """Change each parameter that has a gradient; ``closure`` computes the loss again."""
        loss = evaluated(closure)
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._step_one(p, group)
        return loss

    def _step_one(self, p: Tensor, group: dict[str, Any]) -> None:
        if state.only_forward and any_requires((p.grad,)):
            require_no_leaf("step", edge_of(p))
        g = p.grad._array  # type: ignore[union-attr]  # only such are stepped
        if group.get("maximize"):
            g = -g
        kept = self.state.get(p, {})
        self._update(as_real(p._array), as_real(g), kept, group)
        if kept:
            self.state[p] = kept
        change(p, "step")

    def _update(self, x: np.ndarray, g: np.ndarray, state: dict[str, Any],
                group: dict[str, Any]) -> None:
        raise NotImplementedError(type(self).__name__)

    # ---- its state

    def state_dict(self) -> dict[str, Any]:
        """The state by number of the parameter, and the options of groups."""
        for hook in self.hooks("state_dict_pre"):
            hook(self)
        numbers = {}
        for group in self.param_groups:
            for p in group["params"]:
                numbers[id(p)] = len(numbers)
        groups = [{**{k: v for k, v in g.items() if k != "params"},
                   "params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        saved = {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()},
                 "param_groups": groups}
        for hook in self.hooks("state_dict_post"):
            saved = hook(self, saved) or saved
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what ``state_dict`` of such an optimiser returned."""
        for hook in self.hooks("load_state_dict_pre"):
            state_dict = hook(self, dict(state_dict)) or state_dict
        groups = state_dict["param_groups"]
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        params = []
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match "
                                 "the size of optimizer's group")
            params += list(zip(theirs["params"], mine["params"], strict=True))
            mine.update({k: v for k, v in theirs.items() if k != "params"})
        by_number = dict(params)
        self.state = defaultdict(dict)
        for number, saved in state_dict["state"].items():
            self.state[by_number[number]] = copy.deepcopy(saved)
        for hook in self.hooks("load_state_dict_post"):
            hook(self)

    def __repr__(self) -> str:
        lines = []
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {group[k]}" for k in sorted(group) if k != "params"]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def as_real(x: np.ndarray) -> np.ndarray:
    """``x`` itself, or complex numbers as pairs: real and imaginary parts move each by itself."""
    return x if x.dtype.kind != "c" else x[..., None].view(np.finfo(x.dtype).dtype)


def evaluated(closure: Closure | None) -> Any:
    """What the closure returns, computed with recording on."""
    if closure is None:
        return None
    with enable_grad():
        return closure()


def buffer(state: dict[str, Any], name: str, like: np.ndarray, value: float = 0.0) -> np.ndarray:
    """The array of a tensor in the state of a parameter, full of ``value`` at first."""
    t = state.get(name)
    if t is None:
        t = state[name] = from_array(np.full_like(like, value))
    return t._array


def counted(state: dict[str, Any]) -> int:
    """The number of this step of a parameter, from 1."""
    count = buffer(state, "step", np.zeros((), np.float32))
    count += 1
    return int(count)


def checked(name: str, value: Any, bound: float = math.inf) -> Any:
    """``value``, if it is not negative and below a bound."""
    number = value.item() if isinstance(value, Tensor) else value
    if not 0.0 <= number < bound:
        raise ValueError(f"Invalid {name}: {value}")
    return number


# options that must not be negative; an error calls the others "momentum value" and the like
_SIZES = ("lr", "eps", "weight_decay", "momentum", "momentum_decay", "lr_decay",
          "initial_accumulator_value", "rho")
_CALLED = {"lr": "learning rate", "eps": "epsilon value"}


def options(extra: dict[str, Any], **known: Any) -> dict[str, Any]:
    """The defaults of an optimiser, checked; of ``extra``, what means something on other devices
    only."""
    for name in [name for name in _SIZES if name in known]:
        bound = 1.0 if name == "rho" else math.inf
        known[name] = checked(_CALLED.get(name, f"{name} value"), known[name], bound)
    for i, b in enumerate(known.get("betas", ())):
        checked(f"beta parameter at index {i}", b, 1.0)
    for name in extra:
        if name not in _MEANINGLESS:
            raise TypeError(f"an optimizer got an unexpected keyword argument '{name}'")
        if name == "differentiable" and extra[name]:
            raise NotImplementedError("differentiable=True is not supported: write the step with "
                                      "tensors, and grad with create_graph=True")
    return {**known, **extra}
