"""Ways to read the world, and to change it: what ``tests/jit/test_changing_world.py`` draws from.

A way is a source text that makes a part of a world, an expression that reads it, and statements
that change what the expression is. In all of them ``_N`` ends the names of a part.
"""

from __future__ import annotations

from typing import NamedTuple


class Way(NamedTuple):
    """``undo`` brings back what other programs read too; it runs at the end in any case."""

    name: str
    setup: str
    read: str
    changes: tuple[str, ...]
    undo: str = ""


def way(name: str, setup: str, read: str, *changes: str, undo: str = "") -> Way:
    return Way(name, setup, read, changes, undo)


def asked(names: str, holder: str, attribute: str, setup: str, *changes: str) -> list[Way]:
    """An attribute that may not be there, asked for in each way."""
    full = f"{holder}.{attribute}"
    trying = f"""
def tried_N():
    try:
        return {full}
    except AttributeError:
        return 1.5
"""
    suppressed = f"""
def suppressed_N():
    with contextlib.suppress(AttributeError):
        return {full}
    return 1.25
"""
    walrus = f"""
def walrus_N():
    if hasattr({holder}, "{attribute}"):
        return {full}
    return 1.75
"""
    inner = f"""
def inner_N():
    return {full}
def outer_N():
    try:
        return inner_N()
    except Exception:
        return 1.125
"""
    return [
        way(f"{names}: getattr", setup, f'getattr({holder}, "{attribute}", 1.5)', *changes),
        way(f"{names}: by a name that is global", setup + f'\nNAME_N = "{attribute}"',
            f"getattr({holder}, NAME_N, 1.5)", *changes),
        way(f"{names}: by a computed name", setup,
            f'getattr({holder}, "{attribute[:3]}" + "{attribute[3:]}".lower(), 1.5)', *changes),
        way(f"{names}: hasattr", setup + walrus, "walrus_N()", *changes),
        way(f"{names}: except", setup + trying, "tried_N()", *changes),
        way(f"{names}: suppress", setup + suppressed, "suppressed_N()", *changes),
        way(f"{names}: handled outside", setup + inner, "outer_N()", *changes),
        way(f"{names}: vars", setup, f'dict(vars({holder})).get("{attribute}", 1.5)', *changes),
        way(f"{names}: dir", setup, f'(2.5 if "{attribute}" in dir({holder}) else 1.5)', *changes),
    ]


HEAD = """
import array, builtins, collections, contextlib, contextvars, ctypes, dataclasses, decimal, enum
import functools, importlib, io, itertools, json, math, mmap, operator, os, queue, statistics, sys
import threading, types, weakref
from functools import reduce
from math import tau
import numpy as np
import functrans as ft
class Plain: pass
"""

OBJECT = """
class C_N:
    level = 1.0
    def __init__(self): self.rate = 2.0
    def scaled(self): return self.rate * self.level
o_N = C_N()
"""

WAYS = [
    # names
    way("global", "A_N = 2.0", "A_N", "A_N = 3.0", "A_N = 2", "A_N = -2.0"),
    way("global that goes",
        "A_N = 2.0\ndef r_N():\n try: return A_N\n except NameError: return 1.5",
        "r_N()", "del A_N", "A_N = 4.0"),
    way("absent global", "def r_N():\n try: return B_N\n except NameError: return 1.5", "r_N()",
        "B_N = 4.0"),
    way("absent global, handled outside",
        "def i_N(): return B_N\ndef r_N():\n try: return i_N()\n except Exception: return 1.5",
        "r_N()", "B_N = 4.0"),
    way("absent global, with suppress",
        "def r_N():\n with contextlib.suppress(NameError): return B_N\n return 1.5", "r_N()",
        "B_N = 4.0"),
    way("absent builtin", "def r_N():\n try: return BONUS_N\n except NameError: return 1.5",
        "r_N()",
        "builtins.BONUS_N = 4.0", "BONUS_N = 5.0", undo="vars(builtins).pop('BONUS_N', None)"),
    *[way(f"shadowed {name}", "", read, f"def {name}(*args, **kwargs): return 5.0")
      for name, read in (("abs", "abs(-2.0)"), ("max", "max(1.0, 2.0)"), ("sum", "sum([1.0, 2.0])"),
                         ("float", "float('2')"), ("len", "len((1, 2))"), ("min", "min(2.0, 3.0)"),
                         ("round", "round(2.4)"), ("pow", "pow(2.0, 2)"), ("int", "int('2')"))],
    way("replaced builtin", "", "divmod(7.0, 2.0)[0]",
        "BEFORE_N = builtins.divmod; builtins.divmod = lambda *v: (9.0, 1.0)",
        undo="builtins.divmod = globals().get('BEFORE_N', builtins.divmod)"),
    way("in globals", "", "(2.0 if 'B_N' in globals() else 1.0)", "B_N = 1.0"),
    way("globals by text", "A_N = 2.0", "globals()['A_N']", "A_N = 3.0"),
    way("globals with a default", "", "globals().get('B_N', 1.5)", "B_N = 3.0"),
    way("globals by a computed text", "W1_N = 1.0; W2_N = 2.0",
        "sum(globals()[f'W{i}_N'] for i in (1, 2))", "W2_N = 3.0"),
    way("eval", "A_N = 2.0", "eval('A_N + 1.0')", "A_N = 3.0"),
    way("imported name", "", "tau", "tau = 3.0"),
    way("imported function", "", "reduce(lambda a, b: a + b, [1.0, 2.0])",
        "reduce = lambda f, v: 7.0"),
    way("module", "", "math.floor(2.5)", "math = types.SimpleNamespace(floor=lambda v: 7.0)"),
    way("import inside", "def r_N():\n import math as m\n return m.e", "r_N()",
        "KEPT_N = sys.modules['math']; sys.modules['math'] = types.SimpleNamespace(e=2.0)",
        undo="sys.modules['math'] = globals().get('KEPT_N', sys.modules['math'])"),
    way("import of a name inside", "def r_N():\n from math import e\n return e", "r_N()",
        "KEPT_N = sys.modules['math'].e; sys.modules['math'].e = 2.0",
        undo="sys.modules['math'].e = globals().get('KEPT_N', sys.modules['math'].e)"),
    way("import that fails", "def r_N():\n try: import no_such_module_N\n except ImportError: "
        "return 1.5\n return no_such_module_N.value", "r_N()",
        "sys.modules['no_such_module_N'] = types.SimpleNamespace(value=3.0)",
        undo="sys.modules.pop('no_such_module_N', None)"),
    way("import by text", "", "importlib.import_module('math').e",
        "KEPT_N = sys.modules['math'].e; sys.modules['math'].e = 2.0",
        undo="sys.modules['math'].e = globals().get('KEPT_N', sys.modules['math'].e)"),
    way("own module", "m_N = types.ModuleType('m_N'); m_N.rate = 2.0", "m_N.rate",
        "m_N.rate = 3.0"),
    way("module with getattr", "m_N = types.ModuleType('m_N'); m_N.__getattr__ = lambda n: 2.0",
        "m_N.rate", "m_N.rate = 3.0", "m_N.__getattr__ = lambda n: 5.0"),
    # what libraries own
    *[way(f"library: {path}", "", read,
          f"KEPT_N = {path}; {path} = {new}", undo=f"{path} = globals().get('KEPT_N', {path})")
      for path, read, new in (
          ("math.tau", "math.tau", "3.0"), ("np.pi", "np.pi", "3.0"),
          ("np.e", "np.e", "3.0"), ("math.hypot", "math.hypot(3.0, 4.0)", "lambda *v: 7.0"),
          ("np.float_power", "np.float_power(2.0, 3.0)", "lambda *v: 7.0"),
          ("np.linalg.norm", "np.linalg.norm(np.array([3.0, 4.0]))", "lambda *v: 7.0"),
          ("statistics.mean", "statistics.mean([1.0, 2.0])", "lambda v: 7.0"),
          ("operator.add", "operator.add(1.0, 2.0)", "lambda *v: 7.0"),
          ("sys.maxunicode", "sys.maxunicode / 1e6", "3"),
          ("np.sin", "np.sin(0.5)", "np.cos"),
          ("statistics.mean.__code__", "statistics.mean([1.0, 2.0])",
              "(lambda data: 7.0).__code__"),
      )],
    way("absent in a library", "def r_N():\n try: return math.bonus_N\n except AttributeError: "
        "return 1.5", "r_N()", "math.bonus_N = 3.0", undo="vars(math).pop('bonus_N', None)"),
    way("asked of a library", "", "getattr(np, 'bonus_N', 1.5)", "np.bonus_N = 3.0",
        undo="vars(np).pop('bonus_N', None)"),
    way("environment", "os.environ['K_N'] = '2'", "float(os.environ['K_N'])",
        "os.environ['K_N'] = '3'", undo="os.environ.pop('K_N', None)"),
    way("environment with a default", "", "float(os.getenv('K_N', '1.5'))",
        "os.environ['K_N'] = '3'", undo="os.environ.pop('K_N', None)"),
    way("in the environment", "", "(2.0 if 'K_N' in os.environ else 1.0)",
        "os.environ['K_N'] = '3'", undo="os.environ.pop('K_N', None)"),
    way("arguments of the process", "", "len(sys.argv)", "sys.argv.append('x')",
        undo="sys.argv[:] = [v for v in sys.argv if v != 'x']"),
    # attributes
    *asked("object", "o_N", "bonus", "o_N = Plain()", "o_N.bonus = 2.5", "Plain.bonus = 2.5"),
    *asked("object that has it", "o_N", "bonus", "o_N = Plain(); o_N.bonus = 2.5", "del o_N.bonus"),
    *asked("class", "K_N", "bonus", "class K_N: pass", "K_N.bonus = 2.5"),
    *asked("own module, asked", "m_N", "bonus", "m_N = types.ModuleType('m_N')", "m_N.bonus = 2.5"),
    *asked("namespace", "n_N", "bonus", "n_N = types.SimpleNamespace()", "n_N.bonus = 2.5"),
    *asked("function", "f_N", "bonus", "def f_N(): pass", "f_N.bonus = 2.5"),
    *asked("list's child", "l_N", "bonus", "class L_N(list): pass\nl_N = L_N()", "l_N.bonus = 2.5"),
    *[w for w in asked("slots", "s_N", "bonus", "class S_N:\n __slots__ = ('bonus',)\ns_N = S_N()",
                       "s_N.bonus = 2.5") if "vars" not in w.name and "dir" not in w.name],
    way("attribute", OBJECT, "o_N.rate", "o_N.rate = 3.0", "del o_N.rate; C_N.rate = 4.0"),
    way("attribute of a class", OBJECT, "o_N.level", "C_N.level = 3.0", "o_N.level = 4.0"),
    way("method", OBJECT, "o_N.scaled()", "o_N.rate = 3.0", "C_N.scaled = lambda self: 5.0",
        "o_N.scaled = lambda: 6.0", "o_N.level = 7.0"),
    way("bound method", OBJECT + "b_N = o_N.scaled", "b_N()", "o_N.rate = 3.0", "C_N.level = 4.0"),
    way("all attributes", OBJECT, "sum(vars(o_N).values())", "o_N.more = 3.0", "o_N.rate = 5.0"),
    way("its dict", OBJECT, "sum(o_N.__dict__.values())", "o_N.more = 3.0", "o_N.rate = 5.0"),
    way("computed attributes", "o_N = Plain(); o_N.w1 = 1.0; o_N.w2 = 2.0",
        "sum(getattr(o_N, f'w{i}') for i in (1, 2))", "o_N.w2 = 5.0"),
    way("getter", OBJECT + "g_N = operator.attrgetter('rate')", "g_N(o_N)", "o_N.rate = 3.0"),
    way("caller", OBJECT + "g_N = operator.methodcaller('scaled')", "g_N(o_N)", "o_N.rate = 3.0"),
    way("match", OBJECT + "def r_N():\n match o_N:\n  case C_N(rate=2.0): return 1.0\n  case _: "
        "return 2.0", "r_N()", "o_N.rate = 3.0", "o_N.__class__ = Plain"),
    way("class of an object", OBJECT + "class D_N(C_N):\n level = 5.0", "o_N.scaled()",
        "o_N.__class__ = D_N"),
    way("type", OBJECT + "class D_N(C_N): pass", "(1.0 if type(o_N) is C_N else 2.0)",
        "o_N.__class__ = D_N"),
    way("isinstance", OBJECT + "class D_N: pass", "(1.0 if isinstance(o_N, C_N) else 2.0)",
        "o_N.__class__ = D_N"),
    way("bases", "class A_N:\n v = 1.0\nclass B_N:\n v = 2.0\nclass C_N(A_N): pass\no_N = C_N()",
        "o_N.v", "C_N.__bases__ = (B_N,)"),
    way("bases of a class", "class A_N:\n v = 1.0\nclass B_N:\n v = 2.0\nclass C_N(A_N): pass",
        "C_N.v", "C_N.__bases__ = (B_N,)"),
    way("subclass", "class A_N:\n v = 1.0\nclass B_N: pass\nclass C_N(A_N): pass",
        "(1.0 if issubclass(C_N, B_N) else 2.0)", "C_N.__bases__ = (B_N,)"),
    way("super", "class A_N:\n def r(self): return 1.0\nclass C_N(A_N):\n def r(self): "
        "return super().r() + 1.0\no_N = C_N()", "o_N.r()", "A_N.r = lambda self: 4.0"),
    way("metaclass", "class M_N(type):\n rate = 2.0\nclass C_N(metaclass=M_N): pass", "C_N.rate",
        "M_N.rate = 3.0", "C_N.rate = 4.0"),
    way("property of a metaclass", "V_N = [2.0]\nclass M_N(type):\n @property\n def rate(cls): "
        "return V_N[0]\nclass C_N(metaclass=M_N): pass", "C_N.rate", "V_N[0] = 3.0",
        "M_N.rate = property(lambda cls: 5.0)"),
    way("metaclass, absent", "class M_N(type): pass\nclass C_N(metaclass=M_N): pass",
        "getattr(C_N, 'rate', 1.5)", "M_N.rate = 3.0"),
    way("property",
        "class C_N:\n @property\n def r(self): return self._r\no_N = C_N(); o_N._r = 2.0",
        "o_N.r", "o_N._r = 3.0", "C_N.r = property(lambda self: 4.0)", "C_N.r = 5.0"),
    way("descriptor", "class D_N:\n def __init__(self): self.v = 2.0\n def __get__(self, o, k): "
        "return self.v\nclass C_N:\n d = D_N()\no_N = C_N()", "o_N.d", "vars(C_N)['d'].v = 3.0",
        "D_N.__get__ = lambda self, o, k: 4.0", "C_N.d = 5.0", "o_N.__dict__['d'] = 6.0"),
    way("descriptor that sets", "class D_N:\n def __get__(self, o, k): return o.__dict__['v']\n "
        "def __set__(self, o, v): o.__dict__['v'] = v\nclass C_N:\n d = D_N()\no_N = C_N()\n"
        "o_N.d = 2.0", "o_N.d", "o_N.d = 3.0"),
    way("kept property", "V_N = [2.0]\nclass C_N:\n @functools.cached_property\n def r(self): "
        "return V_N[0]\no_N = C_N()", "o_N.r", "V_N[0] = 3.0; vars(o_N).pop('r', None)",
        "o_N.r = 4.0"),
    way("slot", "class S_N:\n __slots__ = ('v',)\ns_N = S_N(); s_N.v = 2.0", "s_N.v",
        "s_N.v = 3.0"),
    way("attribute that is made up", "V_N = [2.0]\nclass C_N:\n def __getattr__(self, n): "
        "return V_N[0]\no_N = C_N()", "o_N.v", "V_N[0] = 3.0", "o_N.v = 4.0", "C_N.v = 5.0",
        "C_N.__getattr__ = lambda self, n: 6.0"),
    way("every attribute is made up", "V_N = [2.0]\nclass C_N:\n def __getattribute__(self, n): "
        "return V_N[0]\no_N = C_N()", "o_N.v", "V_N[0] = 3.0",
        "C_N.__getattribute__ = lambda self, n: 6.0"),
    way("class method", "class C_N:\n v = 2.0\n @classmethod\n def r(cls): return cls.v", "C_N.r()",
        "C_N.v = 3.0", "C_N.r = lambda: 4.0"),
    way("static method", "class C_N:\n @staticmethod\n def r(): return 2.0\no_N = C_N()", "o_N.r()",
        "C_N.r = staticmethod(lambda: 3.0)"),
    *[way(f"special method {name}",
        f"class C_N:\n def {name}(self, *a): return {value}\no_N = C_N()",
          read, f"C_N.{name} = lambda self, *a: {new}")
      for name, value, read, new in (
          ("__call__", "2.0", "o_N()", "3.0"), ("__len__", "2", "len(o_N)", "3"),
          ("__iter__", "iter([1.0, 2.0])", "sum(o_N)", "iter([5.0])"),
          ("__getitem__", "2.0", "o_N[0]", "3.0"), ("__contains__", "True", "float(1 in o_N)",
              "False"),
          ("__bool__", "True", "(1.0 if o_N else 2.0)", "False"),
          ("__float__", "2.0", "float(o_N)", "3.0"), ("__index__", "2", "[1.0, 2.0, 3.0][o_N]",
              "1"),
          ("__eq__", "True", "(1.0 if o_N == 3 else 2.0)", "False"),
          ("__add__", "2.0", "(o_N + 1.0)", "3.0"), ("__rmul__", "2.0", "(1.0 * o_N)", "3.0"),
          ("__neg__", "2.0", "(-o_N)", "3.0"), ("__hash__", "2", "hash(o_N)", "3"),
          ("__str__", "'2'", "float(str(o_N))", "'3'"), ("__repr__", "'2'", "float(repr(o_N))",
              "'3'"),
          ("__format__", "'2'", "float(f'{o_N}')", "'3'"), ("__abs__", "2.0", "abs(o_N)", "3.0"),
          ("__dir__", "['a']", "len(dir(o_N))", "['a', 'b']"))],
    way("context manager", "class C_N:\n def __enter__(self): return 2.0\n def __exit__(self, *a): "
        "pass\no_N = C_N()\ndef r_N():\n with o_N as v: return v", "r_N()",
        "C_N.__enter__ = lambda self: 3.0"),
    way("special method that comes", "class C_N: pass\no_N = C_N()", "(1.0 if o_N else 2.0)",
        "C_N.__bool__ = lambda self: False", "C_N.__len__ = lambda self: 0"),
    way("dataclass", "@dataclasses.dataclass\nclass C_N:\n v: float = 2.0\no_N = C_N()", "o_N.v",
        "o_N.v = 3.0"),
    way("dataclass as a dict", "@dataclasses.dataclass\nclass C_N:\n v: float = 2.0\no_N = C_N()",
        "sum(dataclasses.asdict(o_N).values())", "o_N.v = 3.0"),
    way("dataclass with slots", "@dataclasses.dataclass(slots=True)\nclass C_N:\n v: float = 2.0\n"
        "o_N = C_N()", "o_N.v", "o_N.v = 3.0"),
    way("maker of objects", "class C_N:\n def __init__(self, v=2.0): self.v = v", "C_N().v",
        "C_N.__init__.__defaults__ = (3.0,)",
        "def i_N(self): self.v = 5.0\nC_N.__init__ = i_N"),
    way("enumeration", "class E_N(enum.Enum):\n A = 2.0", "E_N.A.value", "E_N.A._value_ = 3.0"),
    way("named tuple of a list", "T_N = collections.namedtuple('T_N', 'a b')(1.0, [2.0])",
        "T_N.b[0]", "T_N.b[0] = 3.0"),
    way("annotations", "class C_N:\n v: 'float'", "len(C_N.__annotations__)",
        "C_N.__annotations__['w'] = 'float'"),
    # functions
    way("function", "def f_N(): return 2.0", "f_N()", "f_N = lambda: 3.0",
        "f_N.__code__ = (lambda: 4.0).__code__"),
    way("default", "def f_N(v=2.0): return v", "f_N()", "f_N.__defaults__ = (3.0,)"),
    way("default by name", "def f_N(*, v=2.0): return v", "f_N()",
        "f_N.__kwdefaults__ = {'v': 3.0}",
        "f_N.__kwdefaults__['v'] = 4.0"),
    way("default that changes in place", "def f_N(v=[2.0]): return v[0]", "f_N()",
        "f_N.__defaults__[0][0] = 3.0"),
    way("attribute of a function", "def f_N(): return f_N.v\nf_N.v = 2.0", "f_N()", "f_N.v = 3.0"),
    way("decorated",
        "def d_N(g):\n @functools.wraps(g)\n def w(*a): return g(*a) * S_N\n return w\n"
        "S_N = 2.0\n@d_N\ndef f_N(): return 1.5", "f_N()", "S_N = 3.0",
        "f_N.__wrapped__.__code__ = (lambda: 4.0).__code__"),
    way("closure", "def m_N():\n v = 2.0\n def f(): return v\n def s(w):\n  nonlocal v\n  v = w\n "
        "return f, s\nf_N, s_N = m_N()", "f_N()", "s_N(3.0)"),
    way("closure without a value", "def m_N():\n def f():\n  try: return v\n  except NameError: "
        "return 1.5\n def s(w):\n  nonlocal v\n  v = w\n if 0: v = 0\n return f, s\n"
        "f_N, s_N = m_N()", "f_N()", "s_N(3.0)"),
    way("closure that loses its value",
        "def m_N():\n v = 2.0\n def f():\n  try: return v\n  except "
        "NameError: return 1.5\n def d():\n  nonlocal v\n  del v\n return f, d\nf_N, d_N = m_N()",
        "f_N()", "d_N()"),
    way("partial", "p_N = functools.partial(lambda a, b: a + b, 1.0, b=1.0)", "p_N()",
        "p_N.keywords['b'] = 3.0"),
    way("kept results", "V_N = [2.0]\n@functools.lru_cache\ndef c_N(): return V_N[0]", "c_N()",
        "V_N[0] = 3.0", "c_N.cache_clear()", "V_N[0] = 4.0; c_N.cache_clear()",
        "V_N[0] = 5.0; c_N.cache_clear(); c_N()"),
    way("all kept results", "V_N = [2.0]\n@functools.cache\ndef c_N(k): return V_N[0] * k",
        "c_N(1.0)", "V_N[0] = 3.0", "c_N.cache_clear()", "V_N[0] = 4.0; c_N.cache_clear()"),
    way("kept list", "@functools.cache\ndef c_N(): return [2.0]", "c_N()[0]", "c_N()[0] = 3.0"),
    way("kept results of few", "V_N = [2.0]\n@functools.lru_cache(maxsize=1)\ndef c_N(k): "
        "return V_N[0] * k", "c_N(1.0)", "V_N[0] = 3.0; c_N(2.0)"),
    way("kept by a method",
        "class C_N:\n v = 2.0\n @functools.lru_cache\n def r(self): return self.v\n"
        "o_N = C_N()", "o_N.r()", "C_N.v = 3.0; C_N.r.cache_clear()"),
    way("dispatch", "@functools.singledispatch\ndef f_N(v): return 1.0\n", "f_N(2.0)",
        "f_N.register(float, lambda v: 3.0)"),
    way("generator function", "def g_N():\n yield A_N\n yield 1.0\nA_N = 2.0", "sum(g_N())",
        "A_N = 3.0"),
    way("recursion", "D_N = 3\ndef f_N(n=0): return 1.0 if n >= D_N else 2.0 * f_N(n + 1)", "f_N()",
        "D_N = 2"),
    way("vectorized", "A_N = 2.0\nf_N = np.vectorize(lambda v: v * A_N)", "float(f_N(1.0))",
        "A_N = 3.0"),
    way("documentation", "def f_N():\n 'two'", "len(f_N.__doc__)", "f_N.__doc__ = 'three'"),
    way("name of a function", "def f_N(): pass", "len(f_N.__name__)", "f_N.__name__ = 'longer_N'"),
    # containers
    *[way(f"{name}: {what}", f"c_N = {make}", read, *changes)
      for name, make in (("dict", "dict(k=2.0)"), ("ordered", "collections.OrderedDict(k=2.0)"),
                         ("own dict", "type('D_N', (dict,), {})(k=2.0)"),
                         ("user dict", "collections.UserDict(k=2.0)"),
                         ("default dict", "collections.defaultdict(float, k=2.0)"),
                         ("counter", "collections.Counter(k=2)"),
                         ("chain", "collections.ChainMap(dict(k=2.0))"),
                         ("large dict", "{i: 0.0 for i in range(40)} | dict(k=2.0)"))
      for what, read, changes in (
          ("entry", "c_N['k']", ("c_N['k'] = 3.0",)),
          ("default", "c_N.get('z', 1.5)", ("c_N['z'] = 3.0",)),
          ("in", "(2.0 if 'z' in c_N else 1.0)", ("c_N['z'] = 3.0",)),
          ("values", "sum(c_N.values())", ("c_N['z'] = 3.0", "c_N['k'] = 5.0", "del c_N['k']")),
          ("size", "len(c_N)", ("c_N['z'] = 3.0", "c_N.clear()")))],
    *[way(f"{name}: {what}", f"c_N = {make}", read, *changes)
      for name, make in (("list", "[2.0, 1.0]"), ("own list",
          "type('L_N', (list,), {})([2.0, 1.0])"),
                         ("user list", "collections.UserList([2.0, 1.0])"),
                         ("deque", "collections.deque([2.0, 1.0])"),
                         ("large list", "[2.0] * 40"))
      for what, read, changes in (
          ("entry", "c_N[0]", ("c_N[0] = 3.0",)), ("sum", "sum(c_N)", ("c_N.append(3.0)",)),
          ("size", "len(c_N)", ("c_N.append(3.0)", "c_N.pop()")),
          ("in", "(2.0 if 7.0 in c_N else 1.0)", ("c_N[1] = 7.0",)))],
    way("set", "c_N = {1.0, 2.0}", "sum(c_N)", "c_N.add(3.0)", "c_N.discard(1.0)"),
    way("in a set", "c_N = {1.0, 2.0}", "(2.0 if 3.0 in c_N else 1.0)", "c_N.add(3.0)"),
    way("frozen set", "c_N = frozenset({1.0})", "sum(c_N)", "c_N = frozenset({2.0})"),
    way("view of keys", "c_N = dict(k=2.0); v_N = c_N.keys()", "len(v_N)", "c_N['z'] = 3.0"),
    way("view of a dict", "c_N = dict(k=2.0); v_N = types.MappingProxyType(c_N)",
        "v_N.get('z', 1.5)",
        "c_N['z'] = 3.0"),
    way("nested", "c_N = {'a': [({'b': [2.0]},)]}", "c_N['a'][0][0]['b'][0]",
        "c_N['a'][0][0]['b'][0] = 3.0"),
    way("array of numbers", "c_N = array.array('d', [2.0])", "c_N[0]", "c_N[0] = 3.0",
        "c_N[:] = array.array('d', [4.0, 5.0])"),
    way("length of an array", "c_N = array.array('d', [2.0])", "len(c_N)", "c_N.append(3.0)"),
    way("bytes", "c_N = bytearray(b'23')", "float(c_N)", "c_N[0] = ord('4')",
        "c_N.append(ord('5'))"),
    way("memory", "b_N = bytearray(b'23'); c_N = memoryview(b_N)", "c_N[0]", "b_N[0] = 9"),
    way("mapped memory", "c_N = mmap.mmap(-1, 8)", "c_N[0] + 1.0", "c_N[0] = 3"),
    way("number of C", "c_N = ctypes.c_double(2.0)", "c_N.value", "c_N.value = 3.0"),
    way("numbers of C", "c_N = (ctypes.c_double * 2)(1.0, 2.0)", "sum(c_N)", "c_N[1] = 3.0"),
    way("record of C",
        "class R_N(ctypes.Structure):\n _fields_ = [('v', ctypes.c_double)]\nc_N = R_N(2.0)",
        "c_N.v", "c_N.v = 3.0"),
    way("pointer of C", "v_N = ctypes.c_double(2.0); c_N = ctypes.pointer(v_N)",
        "c_N.contents.value",
        "v_N.value = 3.0", "c_N.contents = ctypes.c_double(4.0)"),
    way("array", "c_N = np.array([1.0, 2.0])", "c_N[1]", "c_N[1] = 3.0", "c_N.fill(4.0)"),
    way("array of objects", "c_N = np.array([{'k': 2.0}, None], object)", "c_N[0]['k']",
        "c_N[0]['k'] = 3.0", "c_N[0] = {'k': 4.0}"),
    way("shape of an array", "c_N = np.zeros((2, 3))", "c_N.shape[0]", "c_N.shape = (3, 2)"),
    way("view of an array", "c_N = np.zeros(8); v_N = c_N[::2]", "np.sum(v_N)", "c_N[2] = 3.0"),
    way("record array", "c_N = np.array([(1, 2.0)], [('a', int), ('b', float)])",
        "float(c_N['b'][0])", "c_N['b'] = 3.0"),
    way("masked array", "c_N = np.ma.array([1.0, 2.0], mask=[False, True])", "float(c_N.sum())",
        "c_N[0] = 3.0", "c_N.mask = [True, False]"),
    way("matrix", "c_N = np.asmatrix([[1.0, 2.0]])", "c_N[0, 1]", "c_N[0, 1] = 3.0"),
    way("text file in memory", "c_N = io.StringIO('2')", "float(c_N.getvalue())",
        "c_N.seek(0); c_N.write('3')"),
    way("file in memory", "c_N = io.BytesIO(b'2')", "float(c_N.getvalue())",
        "c_N.seek(0); c_N.write(b'3')"),
    way("queue", "c_N = queue.Queue(); c_N.put(1)", "c_N.qsize()", "c_N.put(2)"),
    way("simple queue", "c_N = queue.SimpleQueue(); c_N.put(1)", "c_N.qsize()", "c_N.put(2)"),
    way("decimal context", "c_N = decimal.Context(prec=3)", "c_N.prec", "c_N.prec = 5"),
    way("event", "c_N = threading.Event()", "(1.0 if c_N.is_set() else 2.0)", "c_N.set()"),
    way("lock", "c_N = threading.Lock()", "(1.0 if c_N.locked() else 2.0)", "c_N.acquire()"),
    way("text", "c_N = '2.5'", "float(c_N)", "c_N = '3.5'"),
    way("json", "c_N = '[1.0, 2.0]'", "sum(json.loads(c_N))", "c_N = '[3.0]'"),
    # contexts and weak references
    way("context variable", "c_N = contextvars.ContextVar('c_N')", "c_N.get(1.5)", "c_N.set(3.0)"),
    way("context variable with a list", "c_N = contextvars.ContextVar('c_N', default=[2.0])",
        "c_N.get()[0]", "c_N.get()[0] = 3.0", "c_N.set([4.0])"),
    way("variable of a thread", "c_N = threading.local(); c_N.v = 2.0", "c_N.v", "c_N.v = 3.0"),
    way("variable that a thread lacks", "c_N = threading.local()", "getattr(c_N, 'v', 1.5)",
        "c_N.v = 3.0"),
    way("weak reference", OBJECT + "w_N = weakref.ref(o_N)",
        "(1.5 if w_N() is None else w_N().rate)",
        "o_N.rate = 3.0", "o_N = None"),
    way("weak proxy", OBJECT + "w_N = weakref.proxy(o_N)", "w_N.rate", "o_N.rate = 3.0",
        "o_N.__class__.rate = 3.0; del o_N.rate"),
    way("weak proxy that may be gone", OBJECT + "w_N = weakref.proxy(o_N)\ndef r_N():\n try: "
        "return w_N.rate\n except ReferenceError: return 1.5", "r_N()", "o_N.rate = 3.0",
        "o_N = None"),
    way("weak set", OBJECT + "w_N = weakref.WeakSet([o_N])", "len(w_N)",
        "p_N = C_N(); w_N.add(p_N)",
        "o_N = None"),
    way("weak values", OBJECT + "w_N = weakref.WeakValueDictionary(k=o_N)", "w_N['k'].rate",
        "o_N.rate = 3.0"),
    way("weak keys", OBJECT + "w_N = weakref.WeakKeyDictionary({o_N: 2.0})", "w_N[o_N]",
        "w_N[o_N] = 3.0"),
    # functrans
    way("compiled", "A_N = 2.0\ng_N = ft.jit(lambda v: v * A_N)", "g_N(1.5)", "A_N = 3.0"),
    way("compiled derivative", "A_N = 2.0\ng_N = ft.grad(ft.jit(lambda v: v * v * A_N))",
        "g_N(1.5)",
        "A_N = 3.0"),
    way("immutable array", "c_N = ft.array([2.0])", "c_N[0]", "c_N = ft.array([3.0])"),
    way("checkpoint", "A_N = 2.0\ng_N = ft.checkpoint(lambda v: v * A_N)", "g_N(1.5)", "A_N = 3.0"),
    way("scan", "A_N = 2.0\ndef s_N(c, _): return c * A_N, None",
        "ft.scan(s_N, 1.0, None, length=2)[0]", "A_N = 3.0"),
    way("cond", "A_N = 2.0", "ft.cond(1.0 > 0.5, lambda v: v * A_N, lambda v: v, 1.5)",
        "A_N = 3.0"),
]
