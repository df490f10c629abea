"""LLVM for this processor: modules become functions, one code for any size where texts allow."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS, Form, VectorLibrary, generalise
from functrans._compile.emit.shared_text import split
from functrans._compile.lowering import formulas
from functrans._compile.run import gemm, store
from functrans._core.locks import Interrupted, compiling, lazy
from functrans._core.version import VERSION
from functrans._kernels import routines
from functrans._ops.declare import TABLE

# ---- Code for any size: from the third shape on, one code serves all whose texts differ in sizes
#
# Each program is staged, scheduled and written out for its own sizes, as always. What that gives, a
# text, then needs no compiling if it differs from earlier ones in numbers alone, see
# ``emit/module.py``. Texts are compared with those of programs of the same name for other shapes.

# Shapes for which a skeleton is compiled as it is, before there is code for any size.
SPECIAL = 2
# Codes of a skeleton that are kept: each has more sizes than those before, which did not agree.
MOST_CODES = 4
# Skeletons that are remembered, and texts of each.
MOST_SKELETONS, MOST_SAMPLES = 256, 8

Shapes = tuple[tuple[int, ...], ...]
# The inputs whose shapes differ, and the axes that do.
Varying = Sequence[tuple[int, Sequence[int]]]


class Compiler(Protocol):
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

    def __init__(self, machine: Compiler):
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
        made = generalise(skeleton, samples, wanted.slot)
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


# ---- LLVM for this processor: modules as text become functions, through the cache on disk

T = TypeVar("T")

# How LLVM optimises. Loops are unrolled only on request, as it doubles the time to compile.
# Straight-line code is not vectorised, as LLVM 22 gets some of it wrong (docs/how_jit_works.md).
OPTIONS = {"loop_vectorization": True, "loop_unrolling": False, "slp_vectorization": False}
# For code that came out wrong: nothing is vectorised or interleaved.
SAFE = {**OPTIONS, "loop_vectorization": False, "loop_interleaving": False}

# Processors that can be named as targets, and the letters of glibc's vector functions on them.
LEVELS = {"x86-64": "", "x86-64-v2": "", "x86-64-v3": "bd", "x86-64-v4": "bde"}
# Bits of the vectors that each of those letters stands for.
BITS = {"b": 128, "d": 256, "e": 512}

# CPython's functions by their names in object code.
CALLED = re.compile(rb"Py[A-Z][A-Za-z]*_[A-Z]\w+")


class NativeUnavailable(RuntimeError):
    """There is no native code for this Python, NumPy or machine."""


class Loaded(NamedTuple):
    """``code`` must live as long as the functions are called; ``keep`` puts fresh code on disk.

    Code for any size reads ``sizes``.
    """

    code: Any
    functions: dict[str, Any]
    keep: Callable[[], None] | None = None
    found: Found | None = None


def llvm_binding() -> ModuleType:
    """LLVM's bindings, with their library loaded."""
    try:
        import llvmlite.binding as llvm  # lazy: slow to import

        _ = llvm.llvm_version_info  # calls the library, which may be loaded only now
    except (ImportError, OSError, RuntimeError) as e:
        raise NativeUnavailable(f"llvmlite cannot be loaded: {e}") from e
    return llvm


class Machine:
    """LLVM set up for a processor: this one, made once on first use, or one of ``LEVELS``."""

    level = 3  # of optimisation, by LLVM's passes and in its code generator

    def __init__(self, cpu: str | None = None):
        _check_layout()
        self.llvm = llvm = llvm_binding()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        if cpu is None:
            self.cpu = llvm.get_host_cpu_name()
            features = llvm.get_host_cpu_features()
            self.features = features.flatten()
            # of 128 bits, for four float32 at the end of a row
            letters = "bd" * bool(features.get("avx2")) + "e" * bool(features.get("avx512f"))
        else:
            self.cpu, self.features, letters = cpu, "", LEVELS[cpu]
        self.wide = "e" in letters
        lanes = [(letter, BITS[letter]) for letter in letters]
        self.library = VectorLibrary(tuple(lanes), self._symbols(lanes))
        self.builders: dict[str, Any] = {}
        self.families = Families(self)

    def _symbols(self, lanes: list) -> frozenset[str]:
        try:
            self.llvm.load_library_permanently("libmvec.so.1")
        except RuntimeError:
            return frozenset()  # another C library: scalar functions do
        symbols = set()
        rows = [row for row in list(TABLE.values()) if row.facts.libm]
        functions = {(row.facts.libm, "v" * len(row.actions)) for row in rows}
        # with those of rows that are loaded later
        for name, arity in functions | {("erf", "v"), ("erfc", "v")}:
            for letter, bits in lanes:
                for symbol in (f"_ZGV{letter}N{bits // 64}{arity}_{name}",
                               f"_ZGV{letter}N{bits // 32}{arity}_{name}f"):
                    if self.llvm.address_of_symbol(symbol):
                        symbols.add(symbol)
        return frozenset(symbols)

    @lazy
    def identity(self) -> tuple[str, ...]:
        """Everything but the text that object code depends on."""
        import llvmlite  # lazy: slow to import

        versions = VERSION, store.stamp(), np.__version__, sys.version, llvmlite.__version__
        llvm = str(self.llvm.llvm_version_info), self.llvm.get_process_triple()
        blas = routines.available()
        library = "" if blas is None else f"{blas.source}, {blas.bits} bits"
        options = f"{OPTIONS}, {self.level}"
        return (*versions, *llvm, _libc(), self.cpu, self.features, options, library)

    @lazy
    def routines(self) -> routines.Routines | None:
        """BLAS and LAPACK, whose addresses LLVM knows from then on."""
        blas = routines.available()
        if blas is not None:
            names = dict.fromkeys(blas.addresses) | routines.TILED
            for name, other in names.items():
                self.llvm.add_symbol(name, blas.addresses[other or name])
        return blas

    @lazy
    def products(self) -> dict[str, Callable[[], int]]:
        """What makes those that take BLAS's place, and that no code has called yet."""
        return {} if self.routines is None else gemm.stand_in(self, self.routines)

    @lazy
    def special(self) -> dict[str, formulas.Function]:
        """SciPy's special functions, once LLVM knows where they are."""
        functions = formulas.available()
        for name, function in functions.items():
            self.llvm.add_symbol(formulas.PREFIX + name, function.address)
        return functions

    def compile(self, text: str, names: Sequence[str], title: str, key: str | None = None,
                frame: str = "", options: dict[str, bool] = OPTIONS, wanted: Wanted | None = None
                ) -> Loaded:
        """The module's functions, from disk or fresh, or those for any size of what is ``wanted``.

        On disk the code is named by ``key``, else by a hash of the text, and ``frame`` is kept with
        it. With other options than the usual ones it is always compiled.
        """
        with compiling:
            key = key or store.key_of(text, *self.identity)
            code = store.get(key) if options is OPTIONS else None
            if code is not None:
                return Loaded(*self.load(code, names))
            found = self.families.find(wanted) if wanted and options is OPTIONS else None
            if found is not None:
                return Loaded(found.general.code, found.general.functions, found.keep, found)
            code = self.translate(text, options)
            notes = [("program", title), ("functrans", VERSION), ("processor", self.cpu)]
            notes += [("frame", frame)] * bool(frame)
            return Loaded(*self.load(code, names), lambda: store.put(key, code, notes))

    def compile_own(self, text: str, names: Sequence[str], title: str) -> Loaded:
        """Functions that serve all programs."""
        loaded = self.compile(text, names, title)
        if loaded.keep is not None:
            loaded.keep()
        return loaded

    def target(self) -> Any:
        """The processor as LLVM's code generator knows it; each engine takes one of its own."""
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self.cpu, features=self.features, opt=self.level, jit=True, codemodel="jitdefault"
        )

    @lazy
    def generator(self) -> tuple[Any, str]:
        """What writes object code, and how it lays out data."""
        target = self.target()
        return target, str(target.target_data)

    def builder(self, options: dict[str, bool]) -> Any:
        """The builder of the passes: kept, since llvmlite does not free all of it."""
        key = str(options)
        if key not in self.builders:
            llvm = self.llvm
            tuning = llvm.create_pipeline_tuning_options(speed_level=self.level)
            for name, value in options.items():
                setattr(tuning, name, value)
            self.builders[key] = llvm.create_pass_builder(self.generator[0], tuning)
        return self.builders[key]

    def translate(self, text: str, options: dict[str, bool] = OPTIONS, library: bool = False
                  ) -> bytes:
        """The object code of a module; ``library``: for a linker, to be put anywhere in memory."""
        target, layout = self.generator
        module = self.llvm.parse_assembly(text)
        module.triple, module.data_layout = target.triple, layout
        builder = self.builder(options)
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            # its own close() frees nothing, because of the order of its bases
            self.llvm.newpassmanagers.NewPassManager._dispose(passes)
            passes.detach()
        return (self.linked_target() if library else target).emit_object(module)

    def translated(self, text: str) -> bytes | None:
        """The object code of a module; None if LLVM does not take it."""
        try:
            self.llvm.parse_assembly(text).verify()
        except RuntimeError:
            return None
        return self.translate(text)

    def linked_target(self) -> Any:
        """The processor, for code that a linker takes."""
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self.cpu, features=self.features, opt=self.level, reloc="pic", codemodel="default"
        )

    def load(self, code: bytes, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Object code as functions of a list, in an engine that must live while they are called."""
        llvm = self.llvm
        if routines.PREFIX.encode() in code:
            if self.routines is None:
                raise NativeUnavailable("SciPy, which brings BLAS and LAPACK, is not there")
            for name in [name for name in self.products if name.encode() in code]:
                llvm.add_symbol(name, self.products.pop(name)())
        special = formulas.called(code)
        if special and (missing := special - self.special.keys()):
            raise NativeUnavailable(f"this SciPy offers no {', '.join(sorted(missing))} to C")
        called = {name.decode() for name in CALLED.findall(code)}
        for name in called:
            llvm.add_symbol(name, routines.address_of(getattr(ctypes.pythonapi, name)))
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object)  # lets other Python threads run
        if "PyErr_CheckSignals" in called:  # it does so itself, and may return with an exception
            kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)
        addresses = {n: engine.get_function_address(n) for n in names}
        assert all(addresses.values()), addresses
        return engine, {n: kind(address) for n, address in addresses.items()}


def kept_native(make: Callable[..., T]) -> Callable[..., T | None]:
    """``make``, which compiles, with what it returns kept. None where nothing compiles and, for
    now, where this thread compiles already."""

    @functools.cache
    def kept(*args: Any) -> T | None:
        try:
            return make(*args)
        except (NativeUnavailable, ImportError):
            return None

    @functools.wraps(make)
    def made(*args: Any) -> T | None:
        try:
            return kept(*args)
        except Interrupted:
            return None

    return made


@functools.cache
def _host() -> Machine:
    with compiling:
        return Machine()


_chosen: ContextVar[Machine | None] = ContextVar("machine", default=None)


def local() -> Machine:
    """What compiles: for the processor that this process runs on, unless another is chosen."""
    return _chosen.get() or _host()


@contextmanager
def choose(machine: Machine) -> Iterator[None]:
    """Code for another processor, during a ``with`` block."""
    token = _chosen.set(machine)
    try:
        yield
    finally:
        _chosen.reset(token)


def _libc() -> str:
    """The C library whose functions are called, where it tells."""
    name = "CS_GNU_LIBC_VERSION"
    return (os.confstr(name) or "") if name in getattr(os, "confstr_names", ()) else ""


def _check_layout() -> None:
    """Whether lists and arrays lie in memory as the emitted code expects."""
    if sys.implementation.name != "cpython":
        raise NativeUnavailable("native code is made for CPython")
    x = np.zeros(3)
    items = [None, x]
    at = ctypes.c_void_p.from_address(id(items) + LIST_ITEMS).value
    item = ctypes.c_void_p.from_address((at or 0) + ctypes.sizeof(ctypes.c_void_p)).value
    if item != id(x):
        raise NativeUnavailable("this Python keeps a list's items elsewhere")
    data = ctypes.c_void_p.from_address(id(x) + ARRAY_DATA).value
    if data != x.ctypes.data:
        raise NativeUnavailable("this NumPy keeps an array's data elsewhere")
