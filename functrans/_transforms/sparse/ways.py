"""The ways through a function that decides by values, each a straight program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from functrans._compile.ir.program import Program, check
from functrans._transforms.staging.recording import Endless, Outcome, Recording, record
from functrans._transforms.staging.staging import stage
from functrans.errors import FunctransError, UnsupportedError

# Ways that are looked at, at most.
MOST = 64


def the_way(f: Callable, values: Sequence, name: str) -> Program:
    """The way that is gone for these values."""
    return check(_recorded(f, values, name, []).program)


def every_way(f: Callable, values: Sequence, name: str) -> list[Program]:
    """All ways that truth values decide between. Numbers that Python asks for have too many."""
    found: list[Program] = []
    todo: list[list[Outcome]] = [[]]
    while todo:
        known = todo.pop()
        try:
            way = _recorded(f, values, name, known)
        except FunctransError:
            raise
        except Exception:
            if not known:
                raise
            continue  # what raises there has no derivative
        if any([d.convert is not bool for d in way.decisions]):
            stage(f, values, name)  # says where Python asks for a number
        outcomes = [d.outcome for d in way.decisions if d.outcome is not None]
        for n in range(len(known), len(outcomes)):
            other = not outcomes[n].value
            todo.append([*outcomes[:n], Outcome(other, other)])
        found.append(check(way.program))
        if len(found) + len(todo) > MOST:
            raise _too_many(name, f"more than {MOST} ways", way.decisions[-1].line)
    return found


def _recorded(f: Callable, values: Sequence, name: str, known: Sequence[Outcome]) -> Recording:
    try:
        way = record(f, values, values, name, known)
    except Endless as end:
        raise _too_many(name, "a way that does not end", end.line) from None
    if way.lifted:
        raise UnsupportedError(f"{name}: the function reads a traced value; pass it as an argument")
    return way


def _too_many(name: str, what: str, line: str) -> UnsupportedError:
    return UnsupportedError(
        f"{line}: deciding by a value in Python gives {name} {what}. Use np.where, ft.cond or "
        "ft.while_loop, all of whose branches are one program, or ask for the pattern at these "
        "values, local=True."
    )


__all__ = ["every_way", "the_way"]
