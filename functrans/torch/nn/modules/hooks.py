"""How the backward hooks of a module learn of its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from functrans.torch._tensors.tensor import Tensor
from functrans.torch.autograd.function import Function


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
