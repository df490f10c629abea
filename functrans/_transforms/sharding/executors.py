"""Chunks of work on an executor, and functions as bytes for other processes."""

from __future__ import annotations

import functools
import io
import itertools
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from inspect import getclosurevars
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from functrans._core.bind import Tracer
from functrans._transforms.arguments import describe
from functrans._transforms.derived import ByValue, Derived, global_name
from functrans.config import Named, config, of_blocks
from functrans.errors import ArgumentError, ExecutorError, UnsupportedError, name_of

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


# ---- Functions as bytes for other processes: by name where they can be imported, else by value

# What pickle raises for what it cannot take; AttributeError for functions inside of functions.
UNPICKLABLE = (pickle.PicklingError, AttributeError, TypeError, NotImplementedError)


def pack(who: str, f: Callable, title: str, where: str) -> bytes:
    """``f`` for another process, ``where`` it is sent to."""
    try:
        return _dumps(f)
    except UNPICKLABLE as error:
        raise ArgumentError(
            f"{who}: `{title}` cannot be sent to a {where}: {_culprit(f, title)} does not pickle "
            f"({error}). Define functions at the top level of a module and pass what they need as "
            "arguments, or use a ThreadPoolExecutor."
        ) from error


@functools.lru_cache(16)
def unpack(data: bytes) -> Callable:
    """The function of a pickle, the same one at each call."""
    return pickle.loads(data)


def _dumps(x: Any) -> bytes:
    file = io.BytesIO()
    _packer_of(_takes_values())(file).dump(x)
    return file.getvalue()


def _takes_values() -> ModuleType | None:
    """cloudpickle, which takes functions without a global name by value, or None."""
    try:
        import cloudpickle  # lazy: installed with dask, and not needed otherwise
    except ImportError:
        return None
    return cloudpickle


@functools.lru_cache(2)
def _packer_of(library: Any) -> type[pickle.Pickler]:
    base: Any = library.Pickler if library else pickle.Pickler

    class Packer(base):
        """Takes what transforms return, without a name that can be imported, by value."""

        def reducer_override(self, obj: Any) -> Any:
            by_value = _by_value(obj)
            if by_value is not None:
                return by_value()
            if library and type(obj) is CodeType:
                return _with_its_file(self, obj)
            return super().reducer_override(obj) if library else NotImplemented

    return Packer


# What cloudpickle calls the file of any code.
NO_FILE = "<dynamic-code>"


def _with_its_file(packer: Any, code: CodeType) -> Any:
    """The pickle of code, which keeps its file: errors name the user's line."""
    reduce = packer.dispatch_table.get(CodeType)
    if reduce is None:
        return NotImplemented
    make, args, *rest = reduce(code)
    return make, tuple([code.co_filename if x == NO_FILE else x for x in args]), *rest


def _by_value(x: Any) -> Callable[[], tuple] | None:
    if not isinstance(x, ByValue) and type(x) is not FunctionType:
        return None
    by_value = getattr(x, "by_value", None)
    importable = by_value is None or (x.__module__ != "__main__" and global_name(x))
    return None if importable else by_value


def _culprit(f: Any, title: str, seen: tuple = ()) -> str:
    """The innermost of what a function refers to that does not pickle."""
    for name, x in _parts(f):
        if any(x is s for s in seen):
            continue
        try:
            _dumps(x)
        except UNPICKLABLE:
            if callable(x):
                return _culprit(x, name, (*seen, f))
            return f"`{name}`, a {type(x).__name__} that `{title}` refers to,"
    return f"`{title}`"


def _parts(f: Any) -> Iterator[tuple[str, Any]]:
    """What the pickle of a function holds, by names for messages."""
    if isinstance(f, Derived) or (type(f) is FunctionType and hasattr(f, "by_value")):
        yield f.__name__, f.__wrapped__  # type: ignore[attr-defined]  # of what transforms return
    elif isinstance(f, functools.partial):
        for i, x in enumerate([f.func, *f.args, *f.keywords.values()]):
            yield (name_of(x) if callable(x) else f"argument {i - 1}"), x
    elif (owner := getattr(f, "__self__", None)) is not None:
        yield from owner._asdict().items() if hasattr(owner, "_asdict") else [("self", owner)]
    elif hasattr(f, "__code__") and _takes_values() is not None:
        variables = getclosurevars(f)
        yield from {**variables.nonlocals, **variables.globals}.items()


# ---- Chunks of work on an executor: submitted in order, few ahead, results in order
#
# Errors are those of a loop: the first chunk that raises, in order, ends it; its exception arrives
# as it is, with a note that names the chunk, and what has not begun is cancelled.

# Chunks in flight for each worker: one that runs and one that waits, so that no worker is idle
# while results are read; and in all, where an executor does not say how many workers it has.
AHEAD = 2
UNKNOWN = 256
# Seconds after which the executor of a cluster is asked whether it still has one.
PATIENCE = 1.0


class Chunk(NamedTuple):
    """Arguments of one call, and what messages call it."""

    name: str
    args: tuple


def require_executor(who: str, executor: Any) -> Executor | None:
    """``executor`` if chunks can be submitted to it, None for a loop in this thread."""
    if executor is None:
        return None
    from concurrent.futures import Executor  # lazy: brings logging, and few programs have one

    if isinstance(executor, Executor):
        return executor
    remedy = ""
    if callable(getattr(executor, "get_executor", None)):
        remedy = "; pass the executor of a dask Client, client.get_executor()"
    raise ArgumentError(
        f"{who}: executor must be None or a concurrent.futures.Executor, but is "
        f"{describe(executor)}{remedy}"
    )


def require_values(who: str, f: Callable, what: str, xs: Iterable) -> None:
    """Raise where a value is traced: other threads and processes cannot record on its tape."""
    for x in xs:
        if isinstance(x, Tracer):
            raise UnsupportedError(
                f"{who}: {what} of `{name_of(f)}` is traced by {x.owner.fun}, whose tape other "
                "workers cannot write. Apply the derivative first and share out its evaluation, "
                "as in vmap(grad(f), executor=...), or leave out executor."
            )


def run(
    who: str, f: Callable, chunks: Iterable[Chunk], executor: Executor | None, title: str = ""
) -> Iterator[Any]:
    """``f(*args)`` of each chunk, in order. ``title``: the user's function, for messages."""
    title = title or name_of(f)
    where = None if executor is None or _is_of_threads(executor) else type(executor).__name__
    task = Task(who, f, title, where, of_blocks() if executor is not None else {})
    if executor is None:
        for chunk in chunks:
            yield task(*chunk)
        return
    ahead: deque[tuple[str, Future]] = deque()
    todo = iter(chunks)
    most = _in_flight(executor)
    try:
        while True:
            for chunk in itertools.islice(todo, most - len(ahead)):
                ahead.append((chunk.name, _submit(task, executor, chunk)))
            if not ahead:
                return
            yield _result(task, executor, *ahead[0])
            ahead.popleft()
    finally:  # an error, Ctrl-C, or a caller that wants no more
        for _, future in ahead:
            if not _is_lost(executor):  # a lost cluster does not answer
                future.cancel()


def _in_flight(executor: Executor) -> int:
    workers = getattr(executor, "_max_workers", None)
    return AHEAD * workers if isinstance(workers, int) else UNKNOWN


class Task:
    """A function as executors call it: with the settings of the blocks around the caller.

    Threads get the function itself. Other processes, which ``where`` names, get its pickle, made
    once, and keep what they load, so that a function without a global name is staged once in each
    process, not once for each chunk.
    """

    def __init__(self, who: str, f: Callable, title: str, where: str | None, settings: Named):
        self.who, self.title, self.home, self.settings = who, title, os.getpid(), settings
        self.f: Callable | None = f if where is None else None
        self.data = b"" if where is None else pack(who, f, title, where)

    def __call__(self, name: str, args: tuple) -> Any:
        try:
            f = unpack(self.data) if self.f is None else self.f
            with config(**self.settings):
                return f(*args)
        except Exception as error:  # the user's, whatever it is
            error.add_note(f"{self.who}: raised in {name} of `{self.title}`")
            if os.getpid() != self.home and not _travels(error):
                raise RuntimeError(f"{type(error).__name__}: {error} ({name})") from None
            raise


def _is_of_threads(executor: Executor) -> bool:
    from concurrent.futures import ThreadPoolExecutor  # lazy: as above

    return isinstance(executor, ThreadPoolExecutor)


def _travels(error: Exception) -> bool:
    """Whether an exception survives pickling; one that does not takes a process pool with it."""
    try:
        return type(pickle.loads(pickle.dumps(error))) is type(error)
    except Exception:  # whatever its own __reduce__ or __init__ raises
        return False


def _is_lost(executor: Executor) -> bool:
    """Whether this is the executor of a dask client without a cluster, whose futures would never
    be done."""
    client = getattr(executor, "_client", None)
    return getattr(client, "status", "running") != "running"


def _submit(task: Task, executor: Executor, chunk: Chunk) -> Future:
    if _is_lost(executor):
        raise _report_gone(task, executor, chunk.name, ConnectionError("there is no cluster"))
    try:
        return executor.submit(task, *chunk)
    except RuntimeError as error:  # BrokenExecutor is one, and what a closed executor raises
        raise _report_gone(task, executor, chunk.name, error) from error


def _result(task: Task, executor: Executor, name: str, future: Future) -> Any:
    from concurrent.futures import BrokenExecutor, CancelledError, wait  # lazy: as above

    try:
        while not wait([future], PATIENCE).done:
            if _is_lost(executor):
                raise CancelledError("the client has lost its cluster")
        return future.result()
    except (BrokenExecutor, CancelledError) as error:
        raise _report_gone(task, executor, name, error) from error
    except Exception as error:  # of the user's function, or of sending arguments and results
        if not any(name in note for note in getattr(error, "__notes__", ())):
            error.add_note(f"{task.who}: {name} of `{task.title}` was not computed")
        raise


def _report_gone(task: Task, executor: Executor, name: str, error: Exception) -> ExecutorError:
    from concurrent.futures import BrokenExecutor, CancelledError  # lazy: as above

    kind = type(executor).__name__
    if isinstance(error, BrokenExecutor):
        why = (
            "a worker ended abruptly: it was killed (out of memory?), crashed in native code, or "
            "could not import what the function needs"
        )
    elif isinstance(error, CancelledError):
        why = "the work was cancelled: the executor was shut down, or its cluster went away"
    else:
        why = "it takes no more work"
    return ExecutorError(
        f"{task.who}: the {kind} failed before {name} of `{task.title}` was computed; {why} "
        f"({type(error).__name__}: {error}). No partial result is returned."
    )
