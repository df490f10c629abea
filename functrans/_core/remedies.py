"""What to write in the place of a call that would make a plain array of traced values.

The user's own text is read, so that the answer is about that call; where there is none, as in
``python -c``, the answer is about all such calls.
"""

from __future__ import annotations

import ast
import dis
import itertools
import linecache
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from functrans._core.patching import patched
from functrans.errors import package_of_frame, user_frame

# Why an array cannot be written to.
UNSEEN = (
    "a function's arrays can be written to where functrans sees that it does so, in its own code "
    "or that of the functions it names"
)
IMPORT = "import functrans.numpy as np"
GENERAL = (
    f"after {IMPORT}, np.array([a, b]) takes traced values, and arrays that are made can be "
    "assigned into; of numpy's own, np.stack([a, b]) takes them; np.asarray(x) is x; "
    "np.vectorize(f) is functrans.numpy.vectorize(f); y[x] of a plain array y is "
    "ft.array(y)[x]; a constant copy is ft.stop_gradient(x)"
)
_CONVERTERS = frozenset({
    "array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "asarray_chkfinite",
})


def remedy() -> str:
    """What to write instead, for the instruction that the user's code is at."""
    frame = user_frame()
    if frame and (advice := _for_table(frame)):
        return advice
    node = _instruction(frame)[1]
    if frame is None or node is None:
        return GENERAL
    text = ast.unparse(node)
    if isinstance(node, ast.Subscript):
        value, key = ast.unparse(node.value), ast.unparse(node.slice)
        if value.endswith((".r_", ".c_")):
            return f"write functrans.numpy{text[value.rindex('.'):]} for {text}"
        return f"write ft.array({value})[{key}] for {text}"
    if not isinstance(node, ast.Call):
        return GENERAL
    return _for_call(node, text, frame)


def assignment_error(x: Any) -> str:
    """The error of ``y[i] = x`` with an array of NumPy's; "" where the user's code is elsewhere."""
    name, node = _instruction(user_frame())
    if not name.startswith("STORE_") or not isinstance(node, ast.Subscript):
        return ""
    array = ast.unparse(node.value)
    lost = "its numbers are not known" if x.dtype.kind in "iub" else "its derivative would be lost"
    return (
        f"`{array}` is an array of numpy's own, which cannot hold {x!r}: {lost}. Make `{array}` "
        f"after {IMPORT}, or by np.zeros or the like in a block of ft.patch()."
    )


def no_number(x: Any) -> str:
    """The error of a traced number that is to become one of Python's, without the line."""
    frame = user_frame()
    package = package_of_frame(frame) if frame else ""
    if patched.get() and package not in ("", "__main__"):
        return (
            f"float() or a function of the math module got {x!r}; the result would have no "
            "derivative. Names that a module has imported are not seen in a block of ft.patch(), "
            f"unless it is given the module: import {package}; with ft.patch({package})."
        )
    if stored := assignment_error(x):
        return stored
    node = _instruction(frame)[1]
    if frame is not None and isinstance(node, ast.Call):
        call, function = ast.unparse(node), ast.unparse(node.func)
        if instead := _of_math(function, frame):
            return (
                f"{call} got {x!r}; the result would have no derivative. Write "
                f"{instead}{call.removeprefix(function)}, which takes numbers too."
            )
        if function in ("float", "complex") and len(node.args) == 1:
            number = ast.unparse(node.args[0])
            return (
                f"{call} got {x!r}; the result would have no derivative. Leave it out, since "
                f"{number} is a number already; or write float(ft.stop_gradient({number})) for a "
                "constant."
            )
    return (
        f"float() or a function of the math module got {x!r}; the result would have no derivative. "
        "Use NumPy's function (np.sin for math.sin), or float(ft.stop_gradient(x)) for a constant. "
        f"To assign it into an array (y[0] = x[0]), make that one after {IMPORT}."
    )


# Functions of the math module that NumPy or SciPy calls otherwise.
_OTHERWISE = {
    "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atan2": "arctan2", "atanh": "arctanh", "fsum": "sum", "lgamma": "scipy.special.gammaln",
    "phase": "angle", "pow": "power", "polar": "abs", "remainder": "mod",
}
_SPECIAL = frozenset({"erf", "erfc", "gamma"})


def _of_math(function: str, frame: FrameType) -> str:
    """What to call instead of a function of ``math`` or ``cmath``; "" where it is of neither."""
    called = _resolve(function, frame)
    name = getattr(called, "__name__", "")
    if getattr(called, "__module__", None) not in ("math", "cmath"):
        return ""
    if name in _SPECIAL:
        return f"scipy.special.{name}"
    other = _OTHERWISE.get(name, name)
    return other if "." in other else f"np.{other}" if hasattr(np, other) else ""


def _for_table(frame: FrameType) -> str:
    """What to write where the operand's plain array is asked for by a table, as pandas' are."""
    package = package_of_frame(frame)
    caller: FrameType | None = frame
    while caller is not None and package_of_frame(caller) == package:
        caller = caller.f_back
    node = _instruction(caller)[1]
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else []
    if isinstance(node, ast.Call):
        called = node.func
        parts = [*([called.value] if isinstance(called, ast.Attribute) else []), *node.args]
    if caller is None or node is None:
        return ""
    for part in parts:
        name = ast.unparse(part)
        kind = type(_resolve(name, caller))
        if hasattr(kind, "to_numpy") and kind.__module__.partition(".")[0] == package:
            return f"write {name}.to_numpy() for {name} in {ast.unparse(node)}"
    return ""


def numpy_call() -> tuple[str, str]:
    """The call of a function of NumPy's that the user's code is at, and the function's name."""
    frame = user_frame()
    node = _instruction(frame)[1]
    if frame is None or not isinstance(node, ast.Call):
        return "", ""
    function = _resolve(ast.unparse(node.func), frame)
    module = getattr(function, "__module__", None) or ""
    if not callable(function) or isinstance(function, type) or module.partition(".")[0] != "numpy":
        return "", ""
    return ast.unparse(node), getattr(function, "__name__", "")


def _resolve(path: str, frame: FrameType) -> object:
    """What a dotted name is in a frame; None where it cannot be told without running code."""
    first, *rest = path.split(".")
    value: object = _value(frame, first)
    for name in rest:
        value = getattr(value, name, None) if isinstance(value, ModuleType) else None
    return value


def _for_call(node: ast.Call, text: str, frame: FrameType) -> str:
    function = ast.unparse(node.func)
    short = function.rpartition(".")[2]
    first = node.args[0] if node.args else None
    made = isinstance(node.func, ast.Call) and ast.unparse(node.func.func).endswith("vectorize")
    if made or (isinstance(node.func, ast.Name)
                and isinstance(_value(frame, function), np.vectorize)):
        return f"make {function} with functrans.numpy.vectorize"
    kind = getattr(np, short, None)
    if first is not None and isinstance(kind, type) and issubclass(kind, np.generic):
        value = ast.unparse(ast.Attribute(first, "astype", ast.Load()))
        return f"write {value}({function}) for {text}"
    if short in _CONVERTERS and first is not None:
        if _is_nested(first):
            return f"write {IMPORT}, whose np.{short} takes {ast.unparse(first)}"
        if _is_list(first, frame):
            given = ast.unparse(first)
            return (f"write {IMPORT}, whose np.{short} takes {given}, or write np.stack({given}) "
                    f"for {text}")
        return f"leave out {function}: {ast.unparse(first)} is an array already"
    lists = [a for a in node.args if _is_list(a, frame)]
    if lists:
        name = ast.unparse(lists[0])
        join = "functrans.numpy.array" if _is_nested(lists[0]) else "np.stack"
        return f"write {IMPORT}, whose function takes {name}, or in {text}, write {join}({name})"
    return (
        f"take functrans.numpy's function in {text}, where it has one, or pass the constant "
        "ft.stop_gradient(x)"
    )


def call_at(frame: FrameType) -> tuple[str, list]:
    """The name of the function that a frame calls, and its arguments as far as they are constants
    or variables; ``("", [])`` where there is no text to be read.
    """
    node = _instruction(frame)[1]
    if not isinstance(node, ast.Call):
        return "", []
    given = [*node.args, *[k.value for k in node.keywords]]
    values = [_value(frame, a.id) if isinstance(a, ast.Name) else getattr(a, "value", None)
              for a in given if isinstance(a, ast.Name | ast.Constant)]
    return ast.unparse(node.func).rpartition(".")[2], values


def _is_list(node: ast.expr, frame: FrameType) -> bool:
    if isinstance(node, ast.Name):
        return isinstance(_value(frame, node.id), list | tuple)
    return isinstance(node, ast.List | ast.Tuple | ast.ListComp)


def _value(frame: FrameType, name: str) -> Any:
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _is_nested(node: ast.expr) -> bool:
    if isinstance(node, ast.ListComp):
        return isinstance(node.elt, ast.List | ast.Tuple | ast.ListComp)
    entries = node.elts if isinstance(node, ast.List | ast.Tuple) else []
    return any([isinstance(e, ast.List | ast.Tuple | ast.ListComp) for e in entries])


def _instruction(frame: FrameType | None) -> tuple[str, ast.expr | None]:
    """The name of the instruction that a frame is at, and the expression that it is part of;
    ``("", None)`` where there is no text to be read."""
    nothing = "", None
    if frame is None:
        return nothing
    code, at = frame.f_code, frame.f_lasti
    place = next(itertools.islice(code.co_positions(), at // 2, None), (None,) * 4)
    first, last, start, stop = place
    if first is None or last is None or start is None or stop is None:
        return nothing
    lines = [text.encode() for text in linecache.getlines(code.co_filename, frame.f_globals)]
    part = lines[first - 1 : last]
    if len(part) != last - first + 1:
        return nothing
    part[-1] = part[-1][:stop]
    part[0] = part[0][start:]
    try:
        node = ast.parse(b"(" + b"".join(part) + b")", mode="eval").body
    except SyntaxError:  # the text has changed since
        return nothing
    return dis.opname[code.co_code[at]], node


def formats_text() -> bool:
    """Whether the user's code is at ``text % x``, which asks for a number to show it."""
    frame = user_frame()
    if frame is None:
        return False
    code, at = frame.f_code.co_code, frame.f_lasti
    name, which = dis.opname[code[at]], code[at + 1]
    return name == "BINARY_OP" and which in _REMAINDERS


# ``%`` and ``%=`` among the operations of one instruction; Python keeps their order private.
_REMAINDERS = tuple([
    next(i.arg for i in dis.get_instructions(compile(text, "", "exec")) if i.opname == "BINARY_OP")
    for text in ("a % b", "a %= b")
])
