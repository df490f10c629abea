"""Code for any size: from the third shape on, one code serves all whose texts differ in sizes.

Each program is staged, scheduled and written out for its own sizes, as always. What that gives, a
text, then needs no compiling if it differs from earlier ones in numbers alone, see
``emit/sizes.py``. Texts are compared with those of programs of the same name for other shapes.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from functrans._compile.emit.sizes import Form, generalised
from functrans._compile.emit.skeleton import split
from functrans._compile.run import store
from functrans._core.locks import compiling, lazy
from functrans._core.version import VERSION

# Shapes for which a skeleton is compiled as it is, before there is code for any size.
SPECIAL = 2
# Codes of a skeleton that are kept: each has more sizes than those before, which did not agree.
MOST_CODES = 4
# Skeletons that are remembered, and texts of each.
MOST_SKELETONS, MOST_SAMPLES = 256, 8

Shapes = tuple[tuple[int, ...], ...]
# The inputs whose shapes differ, and the axes that do.
Varying = Sequence[tuple[int, Sequence[int]]]


class Machine(Protocol):
    """What translates a text for a processor, and loads what it has translated."""

    cpu: str

    identity: lazy[tuple[str, ...]]

    def translated(self, text: str) -> bytes | None: ...

    def load(self, code: bytes, names: Sequence[str]) -> tuple[Any, dict[str, Any]]: ...


class General(NamedTuple):
    """Machine code for the texts of a form; ``code`` must live as long as it is called."""

    form: Form
    code: Any
    functions: dict[str, Any]
    varying: Varying

    def says(self, names: Sequence[str] = ()) -> str:
        """What may vary, in words; inputs without a name are numbered."""
        axes = [f"{'axis' if len(x) == 1 else 'axes'} {' and '.join(map(str, x))} of "
                f"{names[i] if i < len(names) else f'input {i}'}" for i, x in self.varying]
        return f"for any length of {', '.join(axes)}" if axes else "for any shape"


class Family:
    """What is known of a skeleton: texts that were compiled as they are, and general codes."""

    def __init__(self) -> None:
        self.samples: dict[Shapes, str] = {}  # numbers by shapes
        self.codes: list[General] = []
        self.refused = False  # LLVM has to know the numbers that vary


class Wanted(NamedTuple):
    """What code is needed for: the module's text, its functions, and the slot for the sizes.

    ``name`` is that of the program, ``shapes`` are those of its inputs.
    """

    text: str
    functions: Sequence[str]
    slot: int
    name: str
    shapes: Shapes


class Found(NamedTuple):
    """General code, and the sizes for a text; ``keep`` is called once the code has been verified,
    ``drop`` where it turned out wrong."""

    general: General
    sizes: np.ndarray
    keep: Callable[[], None]
    drop: Callable[[], None]
    fresh: bool


class Families:
    """The families of a machine's code. Its methods are called under the compiler's lock."""

    def __init__(self, machine: Machine):
        self.machine = machine
        self.by_key: OrderedDict[str, Family] = OrderedDict()

    def find(self, wanted: Wanted) -> Found | None:
        """Code for a text that was not compiled before, None where it is to be compiled as it is.
        """
        skeleton, numbers = split(wanted.text)
        inputs = str(len(wanted.shapes))  # of which some may be in no text
        key = store.key_of("any size", skeleton, str(wanted.slot), wanted.name, inputs,
                           *self.machine.identity)
        family = self._family(key, wanted)
        for general in family.codes:
            if (sizes := general.form.sizes(numbers)) is not None:
                drop = _dropping(family, general)
                return Found(general, sizes, _nothing, drop, False)
        family.samples[wanted.shapes] = " ".join(numbers)
        while len(family.samples) > MOST_SAMPLES:
            del family.samples[next(iter(family.samples))]
        if len(family.samples) <= SPECIAL or family.refused:
            return None
        return self._made(key, family, skeleton, numbers, wanted)

    def _family(self, key: str, wanted: Wanted) -> Family:
        """What is known of a skeleton, perhaps from disk."""
        family = self.by_key.get(key)
        if family is None:
            family = self.by_key[key] = Family()
            if (kept := store.find(key)) is not None:
                notes, code = kept
                form = Form(tuple(notes["numbers"].split()), tuple(notes["types"].split()))
                loaded = self.machine.load(code, wanted.functions)
                family.codes.append(General(form, *loaded, json.loads(notes["varying"])))
            while len(self.by_key) > MOST_SKELETONS:
                self.by_key.popitem(last=False)
        self.by_key.move_to_end(key)
        return family

    def _made(self, key: str, family: Family, skeleton: str, numbers: tuple[str, ...],
              wanted: Wanted) -> Found | None:
        """General code for the texts so far."""
        samples = [x.split() for x in family.samples.values()]
        made = generalised(skeleton, samples, wanted.slot)
        code = None if made is None else self.machine.translated(made[1])
        if made is None or code is None:
            family.refused = True
            return None
        form, varying = made[0], _varying(list(family.samples))
        general = General(form, *self.machine.load(code, wanted.functions), varying)
        sizes = form.sizes(numbers)
        assert sizes is not None, form
        notes = [("program", f"{wanted.name} {general.says()}"), ("functrans", VERSION),
                 ("processor", self.machine.cpu), ("varying", json.dumps(varying)),
                 ("numbers", " ".join(form.numbers)), ("types", " ".join(form.types))]

        def keep() -> None:
            with compiling:
                family.codes = [*family.codes, general][-MOST_CODES:]
                store.put(key, code, notes)

        return Found(general, sizes, keep, _dropping(family, general), True)


def _nothing() -> None:
    """What is done for code that is kept already."""


def _dropping(family: Family, general: General) -> Callable[[], None]:
    """What is done where a code is wrong: from then on each text is compiled as it is."""

    def drop() -> None:
        with compiling:
            family.refused = True
            family.codes = [x for x in family.codes if x is not general]

    return drop


def _varying(samples: Sequence[Shapes]) -> Varying:
    """Which axes had several lengths."""
    found = []
    for i, shapes in enumerate(zip(*samples, strict=True)):
        lengths = enumerate(zip(*shapes, strict=True)) if len({*map(len, shapes)}) == 1 else ()
        if axes := [axis for axis, n in lengths if len(set(n)) > 1]:
            found.append((i, axes))
    return found
