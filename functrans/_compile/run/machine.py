"""LLVM for this processor: modules as text become functions, through the cache on disk."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._compile.emit.module import ARRAY_DATA, LIST_ITEMS, VectorLibrary
from functrans._compile.lowering import routines
from functrans._compile.run import sources, store
from functrans._core.locks import compiling, lazy
from functrans._core.version import VERSION
from functrans._ops.declare import TABLE

# How LLVM optimises; loops are unrolled only where one asks for it: twice the time to compile.
OPTIONS = (("loop_vectorization", True), ("loop_unrolling", False))




# What CPython is asked for in the middle of long loops.
CALLED = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyEval_SaveThread",
          "PyEval_RestoreThread")


class NativeUnavailable(RuntimeError):
    """This Python, NumPy or machine is not one that native code can be made for."""


def llvm_binding() -> Any:
    """LLVM's bindings, with their library loaded."""
    try:
        import llvmlite.binding as llvm  # lazy: slow to import

        _ = llvm.llvm_version_info  # calls the library, which may be loaded only now
    except (ImportError, OSError, RuntimeError) as e:
        raise NativeUnavailable(f"llvmlite cannot be loaded: {e}") from e
    return llvm


class Machine:
    """LLVM set up for this processor: made once, on first use."""

    def __init__(self):
        _check_layout()
        self.llvm = llvm = llvm_binding()
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.cpu = llvm.get_host_cpu_name()
        features = llvm.get_host_cpu_features()
        self.features = features.flatten()
        self.wide = bool(features.get("avx512f"))
        lanes = [("d", 256)] if features.get("avx2") else []
        lanes += [("e", 512)] if self.wide else []
        self.library = VectorLibrary(tuple(lanes), self._symbols(lanes))

    def _symbols(self, lanes: list) -> frozenset[str]:
        try:
            self.llvm.load_library_permanently("libmvec.so.1")
        except RuntimeError:
            return frozenset()  # another C library: scalar functions do
        found = set()
        for row in [row for row in list(TABLE.values()) if row.facts.libm]:
            name, arity = row.facts.libm, "v" * len(row.actions)
            for letter, bits in lanes:
                for symbol in (f"_ZGV{letter}N{bits // 64}{arity}_{name}",
                               f"_ZGV{letter}N{bits // 32}{arity}_{name}f"):
                    if self.llvm.address_of_symbol(symbol):
                        found.add(symbol)
        return frozenset(found)

    @lazy
    def identity(self) -> tuple[str, ...]:
        """What object code depends on besides the text that it is made from."""
        import llvmlite  # lazy: slow to import

        versions = VERSION, sources.stamp(), np.__version__, sys.version, llvmlite.__version__
        llvm = str(self.llvm.llvm_version_info), self.llvm.get_process_triple()
        called = routines.found()
        library = "" if called is None else f"{called.source}, {called.bits} bits"
        return (*versions, *llvm, _libc(), self.cpu, self.features, str(OPTIONS), library)

    @lazy
    def routines(self) -> routines.Routines | None:
        """BLAS and LAPACK, once LLVM knows where they are."""
        found = routines.found()
        for name, address in found.addresses.items() if found else ():
            self.llvm.add_symbol(name, address)
        return found

    def compile(self, text: str, names: Sequence[str], title: str, key: str | None = None,
                frame: str = "") -> tuple[Any, dict[str, Any]]:
        """The module's functions; the first result must live as long as they are called.

        The code is kept on disk under ``key``, else under one made of the text; and with it what
        is given as ``frame``.
        """
        with compiling:
            key = key or store.key_of(text, *self.identity)
            code = store.get(key)
            if code is None:
                code = self.translate(text)
                notes = [("program", title), ("functrans", VERSION), ("processor", self.cpu)]
                store.put(key, code, notes + [("frame", frame)] * bool(frame))
            return self.load(code, names)

    def kept(self, key: str, names: Sequence[str]) -> tuple[str, Any, dict[str, Any]] | None:
        """Frame and functions of what is kept under a key."""
        with compiling:
            found = store.find(key)
            if found is None or "frame" not in found[0]:
                return None
            return found[0]["frame"], *self.load(found[1], names)

    def target(self) -> Any:
        """The processor as LLVM's code generator knows it; each engine takes one of its own."""
        return self.llvm.Target.from_default_triple().create_target_machine(
            cpu=self.cpu, features=self.features, opt=3, jit=True, codemodel="jitdefault"
        )

    def translate(self, text: str) -> bytes:
        """The object code of a module."""
        llvm, machine = self.llvm, self.target()
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        for name, value in OPTIONS:
            setattr(options, name, value)
        options.slp_vectorization = len(text) < 200_000
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return machine.emit_object(module)

    def load(self, code: bytes, names: Sequence[str]) -> tuple[Any, dict[str, Any]]:
        """Object code as functions, in an engine that must live as long as they are called."""
        llvm = self.llvm
        if routines.PREFIX.encode() in code and self.routines is None:
            raise NativeUnavailable("SciPy, which brings BLAS and LAPACK, is not there")
        asks = b"PyErr_CheckSignals" in code
        if asks:
            for name in CALLED:
                self.llvm.add_symbol(name, _address(getattr(ctypes.pythonapi, name)))
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), self.target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)  # lets other Python threads run
        if asks:  # does so itself, and may come back with an exception
            kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        found = {n: engine.get_function_address(n) for n in names}
        assert all(found.values()), found
        return engine, {n: kind(address) for n, address in found.items()}


def _address(f: Any) -> int:
    return ctypes.cast(f, ctypes.c_void_p).value or 0


@functools.cache
def local() -> Machine:
    """The machine that this process runs on."""
    with compiling:
        return Machine()


def _libc() -> str:
    """The C library whose functions are called, where it tells."""
    name = "CS_GNU_LIBC_VERSION"
    return (os.confstr(name) or "") if name in getattr(os, "confstr_names", ()) else ""


def _check_layout() -> None:
    """Whether lists and arrays lie in memory as the emitted code expects."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NativeUnavailable("native code is made for CPython with its global lock")
    x = np.zeros(3)
    items = [None, x]
    at = ctypes.c_void_p.from_address(id(items) + LIST_ITEMS).value
    item = ctypes.c_void_p.from_address((at or 0) + ctypes.sizeof(ctypes.c_void_p)).value
    if item != id(x):
        raise NativeUnavailable("this Python keeps a list's items elsewhere")
    data = ctypes.c_void_p.from_address(id(x) + ARRAY_DATA).value
    if data != x.ctypes.data:
        raise NativeUnavailable("this NumPy keeps an array's data elsewhere")


__all__ = ["Machine", "NativeUnavailable", "llvm_binding", "local"]
