"""Settings, of a context (``with ft.config(jit=False): ...``) or of the process (``config.set``).

>>> import functrans as ft
>>> with ft.config(jit=False):
...     ft.config.jit
False
>>> ft.config.jit
True

A context is a thread or an asyncio task. One that has not set something itself reads the setting of
the process, as it is at that moment. Tasks start with the settings of their parent. Threads do so
where they inherit contexts (``sys.flags.thread_inherit_context``), by default in free-threaded
Python alone.
"""

from __future__ import annotations

import operator
import sys
import warnings
from collections.abc import Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from typing import Any, Generic, Self, TypedDict, TypeVar, Unpack
from weakref import WeakValueDictionary

from functrans.errors import ArgumentError

T = TypeVar("T")

SUBGRADIENT, WARN, RAISE = "subgradient", "warn", "raise"
COMPILE = "compile"
SWITCH = (True, False)
SHORT, FULL = "short", "full"
NUMPY, NATIVE = "numpy", "native"


class Named(TypedDict, total=False):
    """What can be set."""

    jit: bool
    keep_memory: bool
    threads: int | None
    kinks: str
    log: str | None
    loops: bool
    tracebacks: str
    values: str
    verify: bool
    warnings: bool


_process: Named = {}  # what holds where no block has set anything
_change = object()  # stands for the last change of that
_live: WeakValueDictionary[int, Settings] = WeakValueDictionary()


class Settings:
    """The settings within some blocks: their own, the inner before the outer, else the process's.

    ``compiles``: ``jit`` is on, and kinks are not watched; ``at_once``: nor are warnings. It is
    read at each call of a compiled function, so all is looked up when something is set.
    """

    compiles: bool
    at_once: bool
    jit: bool
    keep_memory: bool
    threads: int | None
    kinks: str
    log: str | None
    loops: bool
    tracebacks: str
    values: str
    verify: bool
    warnings: bool

    def __init__(self, blocks: tuple[Block, ...] = ()):
        self.blocks = blocks  # those that are entered here, the innermost last
        _live[id(self)] = self
        self.look_up()

    def look_up(self) -> None:
        change: Any = None
        while change is not _change:  # another thread has set something meanwhile
            change = _change
            named: dict[str, Any] = {**_process}
            for block in self.blocks:
                named |= block.named
            for name, value in named.items():
                setattr(self, name, value)
            self.compiles = self.jit and self.kinks == SUBGRADIENT
            self.at_once = self.compiles and not self.warnings


class Block(ContextDecorator):
    """What ``config(...)`` returns: settings for a ``with`` block or a decorated function.

    It may be entered any number of times, in any number of threads.
    """

    def __init__(self, named: Named, frame: Any):
        self.named, self.entered = named, False
        self.line = frame.f_code, frame.f_lineno

    def __enter__(self) -> Self:
        self.entered = True
        _current.set(Settings((*settings().blocks, self)))
        return self

    def __exit__(self, *error: object) -> None:
        blocks = settings().blocks
        if self not in blocks:
            raise ArgumentError(
                f"{self}: a block has to be left in the thread or task that entered it"
            )
        at = len(blocks) - 1 - blocks[::-1].index(self)
        kept = blocks[:at] + blocks[at + 1 :]  # generators may leave theirs before inner ones
        _current.set(Settings(kept))

    def __del__(self) -> None:
        """Warn if the line that made the block has dropped it, so that it did nothing."""
        frame = sys._getframe().f_back
        if not self.entered and frame and (frame.f_code, frame.f_lineno) == self.line:
            code, line = self.line
            warnings.warn_explicit(
                f"{code.co_filename}:{line}: {self} on its own sets nothing. Write `with {self}:` "
                f"for a block, or {str(self).replace('config', 'config.set', 1)} for the process.",
                RuntimeWarning, code.co_filename, line,
            )

    def __repr__(self) -> str:
        return f"config({', '.join(f'{name}={x!r}' for name, x in self.named.items())})"


class Setting(Generic[T]):
    """A row of ``Config``: what a setting is at first, and what it may be."""

    name: str

    def __init__(self, first: T, choices: Sequence[T] = (), read: str = ""):
        self.first, self.choices, self.read = first, choices, read

    def __set_name__(self, owner: type, name: str) -> None:
        self.name, self.read = name, self.read or name
        _process[name] = self.first  # type: ignore[literal-required]  # a test compares the names

    def __get__(self, config: Config, owner: type[Config]) -> T:
        return getattr(settings(), self.read)

    def check(self, value: Any) -> T:
        """``value``; ValueError or TypeError if it is none that the setting may have."""
        for choice in self.choices:
            if value is choice or (isinstance(value, str) and value == choice):
                return choice
        raise ValueError(value)

    def must_be(self) -> str:
        *others, last = map(repr, self.choices)
        return f"{', '.join(others)} or {last}"


class Count(Setting[int | None]):
    """None, or a number from 1 on."""

    def check(self, value: Any) -> int | None:
        if value is not None and (isinstance(value, bool) or operator.index(value) < 1):
            raise ValueError(value)
        return None if value is None else operator.index(value)

    def must_be(self) -> str:
        return "None or at least 1"


class Config:
    """``jit``: whether compiled functions run compiled, or as the plain functions that they are.

    ``keep_memory``: whether the memory of large arrays that are dropped is kept for the next ones,
    up to 256 MiB, once derivatives of large arrays are taken: by the GNU C library, for the whole
    process. ``cache.clear()`` gives it back.

    ``threads``: how many threads work on large arrays; None, as many as there are processors, or
    ``OMP_NUM_THREADS`` if that is less.

    ``kinks``: what a derivative taken exactly at a kink is: the "subgradient" of the op, that after
    a KinkWarning ("warn"), or NotDifferentiable ("raise"). Nothing is compiled while kinks are
    watched: ``jit`` reads False.

    ``log``: "compile" tells ``logging.getLogger("functrans")``, as a warning, what jit stages and
    compiles, why, in what time, and whether the code was on disk. None: nothing, but that what is
    compiled for more than 2 seconds says so as information.

    ``loops``: whether ``jit`` stages loops of many passes that Python's source has as loops, or
    pass by pass. ``jit(f).explain()`` says what has become of each.

    ``tracebacks``: "short" ones of what is raised under a transform leave out the frames of this
    package, and end at the user's line; "full" ones have them.

    ``values``: whether the values of some ufuncs on large traced arrays come from functions of our
    own, which take less time ("native"), or are NumPy's to the last bit ("numpy").

    ``verify``: whether code fresh from the compiler is compared with the interpretation of its
    program, on the arguments of its first call.

    ``warnings``: whether NumPy's warnings of division by zero, overflow and invalid values are
    given for compiled functions. A call that has set the processor's flags of these, or has
    returned an infinity or a NaN, is run once more by Python, with its side effects, and NumPy
    warns at the line that is to blame.
    """

    jit = Setting(True, SWITCH, read="compiles")
    keep_memory = Setting(True, SWITCH)
    threads = Count(None)
    kinks = Setting(SUBGRADIENT, (SUBGRADIENT, WARN, RAISE))
    log = Setting[str | None](None, (None, COMPILE))
    loops = Setting(True, SWITCH)
    tracebacks = Setting(SHORT, (SHORT, FULL))
    values = Setting(NATIVE, (NUMPY, NATIVE))
    verify = Setting(True, SWITCH)
    warnings = Setting(False, SWITCH)

    def __call__(self, **named: Unpack[Named]) -> Block:
        """Settings for the time of a ``with`` block; what is not named stays."""
        return Block(_check("config", named), sys._getframe(1))

    def set(self, **named: Unpack[Named]) -> None:
        """Settings for the process: for every thread and task but those that have set their own.

        >>> import functrans as ft
        >>> ft.config.set(threads=2)
        >>> ft.config.threads
        2
        >>> ft.config.set(threads=None)
        """
        global _change
        _process.update(_check("config.set", named))  # what another thread sets meanwhile is kept
        _change = object()
        for live in _live.valuerefs():
            if (here := live()) is not None:
                here.look_up()

    def __setattr__(self, name: str, value: object) -> None:
        raise ArgumentError(
            f"config.{name} cannot be assigned; write config.set({name}={value!r}) for the "
            f"process, or `with config({name}={value!r}):` for a block"
        )

    def __repr__(self) -> str:
        return f"config({', '.join(f'{name}={getattr(self, name)!r}' for name in _process)})"


def _check(fun: str, named: Any) -> Named:
    """The settings if all of them are known and have values that they can have."""
    checked: Any = {}
    for name, value in named.items():
        if name not in _process:
            known = ", ".join(f"`{known}`" for known in _process)
            raise ArgumentError(f"{fun}: there is no setting `{name}`; there are {known}")
        setting: Setting = vars(Config)[name]
        try:
            checked[name] = setting.check(value)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"{fun}: {name} must be {setting.must_be()}, but is {value!r}"
            ) from None
    return checked


def of_blocks() -> Named:
    """What the blocks around the caller have set, for work in other threads and processes."""
    named: Any = {}
    for block in settings().blocks:
        named |= block.named
    return named


config = Config()
_current: ContextVar[Settings] = ContextVar("settings", default=Settings())  # noqa: B039  # set once
settings = _current.get
