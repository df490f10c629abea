"""Uses that type checkers must refuse, each in a line that says so."""

import numpy as np

import functrans as ft
import functrans.numpy as fnp


def loss(w: np.ndarray, scale: float = 1.0) -> np.ndarray:
    return fnp.sum(w**2) * scale


ft.grad(loss)()  # wrong: no argument
ft.grad(loss)(np.ones(3), factor=2.0)  # wrong: no such parameter
ft.hessian(loss)(np.ones(3), "2")  # wrong: a text for a number
ft.checkpoint(loss)(1, 2, 3)  # wrong: too many arguments
ft.jit(loss)()  # wrong: no argument
ft.jit(loss)(np.ones(3), factor=2.0)  # wrong: no such parameter
ft.jit(loss, static=1)  # wrong: no such option
ft.jit(loss).lower("text")  # wrong: a text for an array
ft.jit(precise=True)(loss)(np.ones(3), "2")  # wrong: a text for a number
fnp.sum(np.ones(3), axes=0)  # wrong: the parameter is named axis
fnp.summ(np.ones(3))  # wrong: no such function
fnp.linalg.solve(np.eye(3))  # wrong: one argument is missing


@ft.grad(argnums=1)
def slope(w: np.ndarray, x: np.ndarray) -> np.ndarray:
    return fnp.sum(w * x)


slope(np.ones(3))  # wrong: one argument is missing
ft.vmap(loss)(np.ones(3), factor=2.0)  # wrong: no such parameter
ft.grad(argnum=1)(loss)  # wrong: the option is argnums
ft.hessian(chunk_size=2)(loss)(np.ones(3), "2")  # wrong: a text for a number
ft.gradd(loss)  # wrong: no such function
ft.array()  # wrong: no argument
ft.jit(loss).lowered(np.ones(3))  # wrong: the method is lower
