"""Memory that this process may still take, asked for before a large result is begun."""

from __future__ import annotations

import os
from collections.abc import Iterator

from functrans.errors import OutOfMemoryError

# Results up to here are begun without asking: reading the system's files takes 0.1 ms.
UNASKED = 2**26


def require_room(who: str, what: str, nbytes: int, instead: str) -> None:
    """Raise where ``what``, which takes ``nbytes``, exceeds the memory that is available."""
    if nbytes <= UNASKED:
        return
    room = available()
    if room is not None and nbytes > room:
        raise OutOfMemoryError(
            f"{who}: {what} takes {_gigabytes(nbytes)}, but only {_gigabytes(room)} of memory are "
            f"available. {instead}"
        )


def available() -> int | None:
    """Bytes that the system, the control group and the limits of this process leave to it."""
    return min(_limits(), default=None)


def _limits() -> Iterator[int]:
    free = _fields("/proc/meminfo")
    if "MemAvailable" in free:
        yield (free["MemAvailable"] + free.get("SwapFree", 0)) * 1024
    elif "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):  # not Linux: all that the machine has
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for most, taken in _control_groups():
        yield max(0, most - taken)
    yield from _of_process()


def _of_process() -> Iterator[int]:
    """What ``ulimit -v`` and ``ulimit -d`` leave."""
    try:
        import resource  # lazy: Windows has none
    except ImportError:
        return
    taken = _fields("/proc/self/status")
    for which, field in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most, _ = resource.getrlimit(which)
        if most != resource.RLIM_INFINITY:
            yield max(0, most - taken.get(field, 0) * 1024)


def _control_groups() -> Iterator[tuple[int, int]]:
    """Limit and use of each control group around the process, of version 2 and of version 1."""
    for line in _text("/proc/self/cgroup").splitlines():
        _, kinds, path = line.split(":", 2)
        if not kinds:
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            root = "/sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        limit, use, cache = names
        while True:
            most, taken = _text(root + path + "/" + limit), _text(root + path + "/" + use)
            if most.strip().isdigit() and taken.strip().isdigit():
                cached = _fields(root + path + "/memory.stat").get(cache, 0)  # given up when needed
                yield int(most), int(taken) - cached
            if path in ("", "/"):
                break
            path = path.rpartition("/")[0]


def _fields(path: str) -> dict[str, int]:
    """The numbers of a file of ``name: number`` lines, with or without the colon."""
    parts = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {p[0]: int(p[1]) for p in parts if len(p) > 1 and p[1].isdigit()}


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _gigabytes(nbytes: int) -> str:
    return f"{nbytes / 1e9:,.1f} GB"


def readable(nbytes: int) -> str:
    """``12.3 MB``."""
    size, units = float(nbytes), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while size >= 999.95 and unit != "TB":
        size, unit = size / 1000, next(units)
    return f"{size:,.{0 if unit == 'B' else 1}f} {unit}"
