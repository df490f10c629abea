"""L-BFGS, after Nocedal and Wright, with the line search of strong Wolfe conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from functrans.torch._graph.modes import no_grad
from functrans.torch._graph.views import change
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.optim.optimizer import Optimizer, as_real, evaluated

# what a line search knows at a step: the step, the loss, the gradient, the slope
Point = tuple[float, float, np.ndarray, float]


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last ``history_size`` changes of the gradient.

    ``step(closure)`` makes up to ``max_iter`` of them; the closure drops the gradients, computes
    the loss, calls its backward and returns it.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1, max_iter: int = 20,
                 max_eval: int | None = None, tolerance_grad: float = 1e-7,
                 tolerance_change: float = 1e-9, history_size: int = 100,
                 line_search_fn: str | None = None):
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
            "history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    # ---- all parameters as one vector

    def _gradient(self) -> np.ndarray:
        return np.concatenate([
            as_real(np.zeros_like(p._array) if p.grad is None else p.grad._array).reshape(-1)
            for p in self._params])

    def _put(self, start: list[np.ndarray], t: float, d: np.ndarray) -> None:
        """Move the parameters to ``start + t d``."""
        at = 0
        for p, x in zip(self._params, start, strict=True):
            as_real(p._array)[...] = x + (t * d[at : at + x.size]).reshape(x.shape)
            change(p, "step")
            at += x.size

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Make up to ``max_iter`` steps; returns the loss before the first."""
        with no_grad():
            return self._minimise(closure)

    def _minimise(self, closure: Any) -> Any:
        group = self.param_groups[0]
        shown: dict[str, Any] = self.state[self._params[0]]
        for name in ("func_evals", "n_iter"):
            shown.setdefault(name, 0)
        first = evaluated(closure)
        loss, g = float(first), self._gradient()
        shown["func_evals"] += 1
        if np.abs(g).max(initial=0) <= group["tolerance_grad"]:
            return first
        state = {name: _as_numbers(x) for name, x in shown.items()}
        self._search(closure, state, loss, g)
        shown.update({name: _as_tensors(name, x, g.dtype) for name, x in state.items()})
        return first

    def _search(self, closure: Any, state: dict[str, Any], loss: float, g: np.ndarray) -> None:
        """The iterations of a step, from a loss and its gradient on."""
        group, evaluations = self.param_groups[0], 1
        for n in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            d = self._direction(state, g, group["history_size"])
            before = loss
            state.update(d=d, prev_flat_grad=g.copy(), prev_loss=loss)
            if state["n_iter"] == 1:
                t = min(1.0, 1.0 / float(np.abs(g).sum())) * group["lr"]
            else:
                t = group["lr"]
            state["t"] = t
            slope = float(g @ d)
            if slope > -group["tolerance_change"]:
                break
            t, loss, g, count = self._moved(closure, n, t, d, loss, g, slope)
            state["t"] = t
            evaluations += count
            state["func_evals"] += count
            if (n == group["max_iter"] or evaluations >= group["max_eval"]
                    or np.abs(g).max() <= group["tolerance_grad"]
                    or np.abs(t * d).max() <= group["tolerance_change"]
                    or abs(loss - before) < group["tolerance_change"]):
                break

    def _direction(self, state: dict[str, Any], g: np.ndarray, size: int) -> np.ndarray:
        """-H g, by the recursion over the last changes."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return -g
        y, s = g - state["prev_flat_grad"], state["d"] * state["t"]
        ys = float(y @ s)
        if ys > 1e-10:
            for name, x in (("old_dirs", y), ("old_stps", s)):
                state[name] = [*state[name], x][-size:]
            state["H_diag"] = ys / float(y @ y)
        pairs = [(y, s, 1.0 / float(y @ s))
                 for y, s in zip(state["old_dirs"], state["old_stps"], strict=True)]
        q, alphas = -g, []
        for y, s, rho in reversed(pairs):
            alphas.append(float(s @ q) * rho)
            q = q - alphas[-1] * y
        state["ro"] = [rho for _, _, rho in pairs]
        state["al"] = [*reversed(alphas), *[None] * (size - len(alphas))]
        d = q * state["H_diag"]
        for (y, s, rho), alpha in zip(pairs, reversed(alphas), strict=True):
            d = d + s * (alpha - float(y @ d) * rho)
        return d

    def _moved(self, closure: Any, n: int, t: float, d: np.ndarray, loss: float, g: np.ndarray,
               slope: float) -> tuple[float, float, np.ndarray, int]:
        """The step that is taken, loss and gradient there, and how often they were computed."""
        group, start = self.param_groups[0], [as_real(p._array).copy() for p in self._params]

        def at(t: float) -> tuple[float, np.ndarray]:
            self._put(start, t, d)
            value = float(evaluated(closure))
            return value, self._gradient()

        if group["line_search_fn"] is not None:
            loss, g, t, count = strong_wolfe(at, t, d, loss, g, slope, group["tolerance_change"])
            self._put(start, t, d)
            return t, loss, g, count
        if n == group["max_iter"]:
            self._put(start, t, d)
            return t, loss, g, 0
        loss, g = at(t)
        return t, loss, g, 1


def _as_numbers(x: Any) -> Any:
    """What the state holds, without tensors."""
    if isinstance(x, list):
        return [_as_numbers(v) for v in x]
    if not isinstance(x, Tensor):
        return x
    return x._array if x._array.ndim else x.item()


def _as_tensors(name: str, x: Any, dtype: np.dtype) -> Any:
    """What torch's state holds."""
    if isinstance(x, list):
        return [v if v is None else from_array(np.asarray(v, dtype)) for v in x]
    if isinstance(x, np.ndarray) or (name == "H_diag" and type(x) is float):
        return from_array(np.asarray(x, dtype))
    return x


def _minimum_of_cubic(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic with two values and slopes is least, within bounds."""
    (x1, f1, _, s1), (x2, f2, _, s2) = a, b
    low, high = bounds or ((x1, x2) if x1 <= x2 else (x2, x1))
    d1 = s1 + s2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - s1 * s2
    if square < 0:
        return (low + high) / 2
    d2 = square**0.5
    if x1 <= x2:
        t = x2 - (x2 - x1) * ((s2 + d2 - d1) / (s2 - s1 + 2 * d2))
    else:
        t = x1 - (x1 - x2) * ((s1 + d2 - d1) / (s1 - s2 + 2 * d2))
    return min(max(t, low), high)


def strong_wolfe(at: Callable[[float], tuple[float, np.ndarray]], t: float, d: np.ndarray,
                 loss: float, g: np.ndarray, slope: float, tolerance: float, c1: float = 1e-4,
                 c2: float = 0.9, limit: int = 25) -> tuple[float, np.ndarray, float, int]:
    """A step with enough descent and a flat enough slope: loss, gradient, step, evaluations."""
    width = float(np.abs(d).max())
    start = 0.0, loss, g.copy(), slope

    def look(t: float) -> Point:
        value, gradient = at(t)
        return t, value, gradient.copy(), float(gradient @ d)

    now, before = look(t), start
    count, bracket = 1, None
    for turn in range(limit):
        t, value, _, s = now
        if value > loss + c1 * t * slope or (turn > 1 and value >= before[1]):
            bracket = [before, now]
        elif abs(s) <= -c2 * slope:
            return value, now[2], t, count
        elif s >= 0:
            bracket = [before, now]
        if bracket is not None:
            break
        ahead = t + 0.01 * (t - before[0]), t * 10
        new = _minimum_of_cubic(before, now, ahead)
        before, now = now, look(new)
        count += 1
    else:
        bracket, turn = [start, now], limit
    return _zoom(look, bracket, turn, count, loss, slope, width, tolerance, c1, c2, limit)


def _cubic_interpolate(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float,
                       bounds: tuple[float, float] | None = None) -> float:
    """``_minimum_of_cubic`` as other packages call it: at two points a value and a slope."""
    unread = np.empty(0)
    return _minimum_of_cubic((x1, f1, unread, g1), (x2, f2, unread, g2), bounds)


def _strong_wolfe(obj_func: Callable, x: Any, t: Any, d: Tensor, f: float, g: Tensor, gtd: Any,
                  c1: float = 1e-4, c2: float = 0.9, tolerance_change: float = 1e-9,
                  max_ls: int = 25) -> tuple[float, Tensor, Any, int]:
    """``strong_wolfe`` as other packages call it: ``obj_func(x, t, d)`` returns loss and gradient,
    a tensor. It returns loss, gradient, step and the number of evaluations."""
    def at(t: float) -> tuple[float, np.ndarray]:
        loss, gradient = obj_func(x, t, d)
        return float(loss), gradient._array

    loss, gradient, step, count = strong_wolfe(at, float(t), d._array, float(f), g._array,
                                               float(gtd), tolerance_change, c1, c2, max_ls)
    return loss, from_array(gradient), step, count


def _zoom(look: Callable[[float], Point], bracket: list[Point], turn: int, count: int,
            loss: float, slope: float, width: float, tolerance: float, c1: float, c2: float,
            limit: int) -> tuple[float, np.ndarray, float, int]:
    """The bracket made smaller until a point in it is good enough."""
    stuck = False
    low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
    while turn < limit:
        ends = [bracket[0][0], bracket[1][0]]
        if abs(ends[1] - ends[0]) * width < tolerance:
            break
        t = _minimum_of_cubic(bracket[0], bracket[1])
        margin = 0.1 * (max(ends) - min(ends))
        if min(max(ends) - t, t - min(ends)) < margin:
            if stuck or t >= max(ends) or t <= min(ends):
                near_top = abs(t - max(ends)) < abs(t - min(ends))
                t = max(ends) - margin if near_top else min(ends) + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = look(t)
        count, turn = count + 1, turn + 1
        if now[1] > loss + c1 * t * slope or now[1] >= bracket[low][1]:
            bracket[high] = now
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
            continue
        done = abs(now[3]) <= -c2 * slope
        if not done and now[3] * (bracket[high][0] - bracket[low][0]) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = now
        if done:
            break
    t, value, gradient, _ = bracket[low]
    return value, gradient, t, count
