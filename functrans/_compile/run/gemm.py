"""Products of matrices for processors whose vectors BLAS leaves half empty: one function a dtype.

OpenBLAS chooses its code by the processor's name, and takes what is for AVX2 where it does not know
one that has AVX-512. There these functions stand in BLAS's place, for products of moderate size.
They have its signature, and hand on what they do not do. Products inside tiles, which are on one
thread each, are theirs on all processors that have AVX-512.

As in BLIS (Van Zee and van de Geijn, 2015), blocks of both matrices are copied to panels, in the
order in which they are read: of ``a`` three vectors high, of ``b`` eight columns wide. The sums of
such a tile of the result stay in registers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from functrans._compile.lowering.numbers import Code, fill
from functrans._compile.run import gemv
from functrans._kernels import routines
from functrans._kernels.routines import PREFIX, address_of

# Bits of a vector; vectors in the height of a tile, and the tile's columns.
BITS, HIGH, ACROSS = 512, 3, 8
# Most terms of a sum in one turn; columns of ``b`` that are copied at once, and bytes of ``a``.
TERMS, COLUMNS, ROW_BYTES = 320, 512, 1536
# A side from which copying pays, and the multiply-adds from which more than two processors are
# worth BLAS's threads; two of its threads take as long as this.
LEAST, MOST = 4, 1 << 25
# No limit; and the multiply-adds below which BLAS's code for AVX-512 is faster.
ALL, FEWEST = 1 << 62, 1 << 19
TYPES = {"d": "double", "s": "float"}


class Loaded(Protocol):
    """Machine code, by the names of its functions."""

    @property
    def code(self) -> object: ...  # must live as long as they are called

    @property
    def functions(self) -> dict[str, Any]: ...


class Machine(Protocol):
    """What compiles functions that serve all programs; ``wide``: it has vectors of 512 bits."""

    llvm: Any
    wide: bool

    def compile_own(self, text: str, names: Sequence[str], title: str) -> Loaded: ...


def stand_in(machine: Machine, blas: routines.Routines) -> dict[str, Callable[[], int]]:
    """What makes products that are faster than BLAS's on this processor, by their names, and
    returns their addresses."""
    if not machine.wide or not blas.core:
        return {}
    narrow = blas.core in routines.NARROW
    # by processors, not by threads, on whose number results do not depend
    several = (os.cpu_count() or 1) > 2
    most, few = (MOST, gemv.MOST) if several else (ALL, ALL)
    makers: dict[str, Callable[[], int]] = {}
    for letter, t in TYPES.items():
        texts = {f"tile_{letter}gemm": partial(text, letter, ALL, 0 if narrow else FEWEST),
                 f"tile_{letter}gemv": partial(gemv.text, letter, t, ALL)}
        if narrow:
            texts[f"{letter}gemm"] = partial(text, letter, most)
            texts[f"{letter}gemv"] = partial(gemv.text, letter, t, few)
        makers |= {PREFIX + name: partial(compiled, machine, blas, name.removeprefix("tile_"), of)
                   for name, of in texts.items()}
    return makers


def compiled(machine: Machine, blas: routines.Routines, name: str, of: Callable[[], str]) -> int:
    """The address of the function of a module, which stays for as long as the process."""
    machine.llvm.add_symbol(f"blas_{name}", blas.addresses[PREFIX + name])
    loaded = machine.compile_own(of(), [name[1:]], f"products, {name}")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(loaded.code))  # programs are linked to it
    return address_of(loaded.functions[name[1:]])


def text(letter: str, most: int, fewest: int = 0) -> str:
    """The module of a function like ``dgemm`` or ``sgemm``, for so many multiply-adds."""
    t = TYPES[letter]
    size = _size(t)
    lanes = BITS // 8 // size
    vector = f"<{lanes} x {t}>"
    parts = [_pack(t), *[_tile(t, lanes, high) for high in range(1, HIGH + 1)],
             _product(t, size, lanes), _entry(letter, size, most, fewest),
             f"declare {vector} @llvm.fma.v{lanes}f{8 * size}({vector}, {vector}, {vector})",
             f"declare <8 x {t}> @llvm.masked.load.v8f{8 * size}.p0(ptr, i32, <8 x i1>, <8 x {t}>)",
             "@zeros = internal constant [64 x i8] zeroinitializer, align 64",
             f"declare void @blas_{letter}gemm({', '.join(['ptr'] * 13 + ['i64'] * 2)})",
             "declare ptr @malloc(i64)", "declare void @free(ptr)",
             f"@room = internal global [{_room(size)} x i8] zeroinitializer, align 64",
             "@taken = internal global i64 0",
             "attributes #0 = { nounwind }"]
    return "\n".join(parts)


def _room(size: int) -> int:
    """Bytes of the panels."""
    return TERMS * (ROW_BYTES + COLUMNS * size)


def _less(code: Code, x: str, y: str) -> str:
    return code.select("i64", code.op(f"icmp ult i64 {x}, {y}"), x, y)


def _pack(t: str) -> str:
    """A panel: ``rows`` entries, and zeros up to its ``width``, for each of ``terms``.

    Entries are ``down`` apart, terms ``along``; one of the two is 1.
    """
    code, eight = Code(), f"<8 x {t}>"
    align = f"align {_size(t)}"
    together = code.op("icmp eq i64 %down, 1")
    with (code.where(together), code.counted("0", "%terms") as k,
          code.counted("0", "%width", "8") as r):
        left = code.op(f"trunc i64 {code.op(f'sub i64 %rows, {r}')} to i32")
        one = code.op(f"insertelement <8 x i32> poison, i32 {left}, i64 0")
        every = code.op(f"shufflevector <8 x i32> {one}, <8 x i32> poison, "
                        "<8 x i32> zeroinitializer")
        lanes = ", ".join([f"i32 {i}" for i in range(8)])
        there = code.op(f"icmp slt <8 x i32> <{lanes}>, {every}")
        x = code.op(f"call {eight} @llvm.masked.load.v8f{8 * _size(t)}.p0("
                    f"ptr {code.place(t, '%x', (k, '%along'), (r, '1'))}, i32 {_size(t)}, "
                    f"<8 x i1> {there}, {eight} zeroinitializer)")
        code.line(f"store {eight} {x}, ptr {code.place(t, '%y', (k, '%width'), (r, '1'))}, {align}")
    whole = code.op("and i64 %terms, -8")
    apart = code.op(f"xor i1 {together}, true")
    with code.where(apart), code.counted("0", "%width", "8") as r:
        rows = []
        for i in range(8):
            row = code.op(f"add i64 {r}, {i}")
            there = code.op(f"icmp ult i64 {row}, %rows")
            at = code.place(t, "%x", (row, "%down"))
            rows.append((code.op(f"select i1 {there}, ptr {at}, ptr @zeros"),
                         code.select("i64", there, "1", "0")))
        with code.counted("0", whole, "8") as k:
            block = [code.op(f"load {eight}, ptr {code.place(t, row, (k, step))}, {align}")
                     for row, step in rows]
            for i, x in enumerate(_turn(code, eight, block)):
                term = code.op(f"add i64 {k}, {i}")
                at = code.place(t, "%y", (term, "%width"), (r, "1"))
                code.line(f"store {eight} {x}, ptr {at}, {align}")
        with code.counted(whole, "%terms") as k:
            for i, (row, step) in enumerate(rows):
                x = code.op(f"load {t}, ptr {code.place(t, row, (k, step))}")
                at = code.place(t, "%y", (k, "%width"), (r, "1"), (str(i), "1"))
                code.line(f"store {t} {x}, ptr {at}")
    code.line("ret void")
    numbers = ("down", "along", "rows", "width", "terms")
    parameters = ", ".join(["ptr noalias %x", "ptr noalias %y", *[f"i64 %{n}" for n in numbers]])
    return code.function("internal void @pack", parameters)


def _size(t: str) -> int:
    """Bytes of an entry."""
    return {"double": 8, "float": 4}[t]


def _turn(code: Code, eight: str, rows: list[str]) -> list[str]:
    """The transpose of a matrix of eight rows, by exchanging halves, quarters and eighths."""
    for half in (4, 2, 1):
        new = list(rows)
        for i in range(8):
            if i & half:
                continue
            j = i | half
            low = [k if not k & half else 8 + (k ^ half) for k in range(8)]
            high = [k | half if not k & half else 8 + k for k in range(8)]
            for to, mask in ((i, low), (j, high)):
                places = ", ".join(f"i32 {k}" for k in mask)
                new[to] = code.op(f"shufflevector {eight} {rows[i]}, {eight} {rows[j]}, "
                                  f"<8 x i32> <{places}>")
        rows = new
    return rows


def _tile(t: str, lanes: int, high: int) -> str:
    """A tile of ``c``, set or added to, of which ``rows`` and ``columns`` exist."""
    code, vector = Code(), f"<{lanes} x {t}>"
    size = _size(t)
    width, names = high * lanes, [(u, j) for j in range(ACROSS) for u in range(high)]
    code.line("br label %turn")
    code.label("turn")
    code.line("%k = phi i64 [ 0, %entry ], [ %k.next, %turn ]")
    for u, j in names:
        code.line(f"%sum.{u}.{j} = phi {vector} [ zeroinitializer, %entry ], "
                  f"[ %next.{u}.{j}, %turn ]")
    xs = []
    row = code.place(t, "%a", ("%k", str(width)))
    for u in range(high):
        at = code.place(t, row, (str(u * lanes), "1"))
        xs.append(code.op(f"load {vector}, ptr {at}, align {lanes * size}"))
    column = code.place(t, "%b", ("%k", str(ACROSS)))
    kind = f"v{lanes}f{8 * size}"
    for j in range(ACROSS):
        y = code.op(f"load {t}, ptr {code.place(t, column, (str(j), '1'))}")
        one = code.op(f"insertelement {vector} poison, {t} {y}, i64 0")
        every = code.op(f"shufflevector {vector} {one}, {vector} poison, "
                        f"<{lanes} x i32> zeroinitializer")
        for u in range(high):
            code.line(f"%next.{u}.{j} = call {vector} @llvm.fma.{kind}({vector} {xs[u]}, "
                      f"{vector} {every}, {vector} %sum.{u}.{j})")
    code.line("%k.next = add i64 %k, 1")
    code.line("%k.more = icmp ult i64 %k.next, %terms")
    code.line("br i1 %k.more, label %turn, label %done")
    code.label("done")
    tall, broad = (code.op(f"icmp eq i64 {n}, {m}")
                   for n, m in (("%rows", width), ("%columns", ACROSS)))
    whole = code.op(f"and i1 {tall}, {broad}")
    room = code.op(f"select i1 {whole}, ptr %c, ptr %part")
    line = code.select("i64", whole, "%apart", str(width))
    direct = code.op(f"and i1 {whole}, %adds")
    places = {(u, j): code.place(t, room, (str(j), line), (str(u * lanes), "1")) for u, j in names}
    with code.where(code.op(f"xor i1 {direct}, true")):
        for (u, j), at in places.items():
            code.line(f"store {vector} %next.{u}.{j}, ptr {at}, align {size}")
    with code.where(direct):
        for (u, j), at in places.items():
            had = code.op(f"load {vector}, ptr {at}, align {size}")
            total = code.op(f"fadd {vector} {had}, %next.{u}.{j}")
            code.line(f"store {vector} {total}, ptr {at}, align {size}")
    with (code.where(code.op(f"xor i1 {whole}, true")),
          code.counted("0", "%columns", stem="j") as j,
          code.counted("0", "%rows") as i):
        x = code.op(f"load {t}, ptr {code.place(t, '%part', (j, str(width)), (i, '1'))}")
        at = code.place(t, "%c", (j, "%apart"), (i, "1"))
        had = code.op(f"load {t}, ptr {at}")
        total = code.select(t, "%adds", code.op(f"fadd {t} {had}, {x}"), x)
        code.line(f"store {t} {total}, ptr {at}")
    code.line("ret void")
    parameters = ", ".join([
        "ptr %a", "ptr %b", "ptr %c", "ptr noalias %part",
        *[f"i64 %{n}" for n in ("apart", "terms", "rows", "columns")], "i1 %adds"])
    return code.function(f"internal void @tile{high}", parameters)


def _product(t: str, size: int, lanes: int) -> str:
    """``c``, set to ``a @ b`` or added to, by columns; entries are ``down`` and ``along`` apart."""
    code = Code()
    height = HIGH * lanes
    rows_at_once = ROW_BYTES // size // height * height
    part = code.op(f"alloca [{height * ACROSS} x {t}], align 64")
    turns = code.op(f"udiv i64 {code.op(f'add i64 %terms, {TERMS - 1}')}, {TERMS}")
    more = code.op(f"sub i64 {code.op(f'add i64 %terms, {turns}')}, 1")
    step = code.op(f"udiv i64 {more}, {turns}")
    panels = code.op(f"getelementptr i8, ptr %room, i64 {TERMS * ROW_BYTES}")
    with (code.pieces("0", "%columns", COLUMNS, "block") as (j0, j1),
          code.loop("0", "%terms", step, "first") as k0):
        n, k = code.op(f"sub i64 {j1}, {j0}"), code.op(f"sub i64 %terms, {k0}")
        k, later = _less(code, k, step), code.op(f"icmp ne i64 {k0}, 0")
        adds = code.op(f"or i1 {later}, %adds")
        with code.loop("0", n, str(ACROSS), "panel") as j:
            wide = _less(code, code.op(f"sub i64 {n}, {j}"), str(ACROSS))
            x = code.place(t, "%b", (k0, "%down_b"), (code.op(f"add i64 {j0}, {j}"), "%along_b"))
            code.line(f"call void @pack(ptr {x}, ptr {code.place(t, panels, (j, k))}, "
                      f"i64 %along_b, i64 %down_b, i64 {wide}, i64 {ACROSS}, i64 {k})")
        with code.pieces("0", "%rows", rows_at_once, "stretch") as (i0, i1):
            m = code.op(f"sub i64 {i1}, {i0}")
            with code.loop("0", m, str(height), "panel") as i:
                tall = _less(code, code.op(f"sub i64 {m}, {i}"), str(height))
                width = _round(code, tall, lanes)
                row = code.op(f"add i64 {i0}, {i}")
                x = code.place(t, "%a", (row, "%down_a"), (k0, "%along_a"))
                code.line(f"call void @pack(ptr {x}, ptr {code.place(t, '%room', (i, k))}, "
                          f"i64 %down_a, i64 %along_a, i64 {tall}, i64 {width}, i64 {k})")
            with (code.loop("0", n, str(ACROSS), "column") as j,
                  code.loop("0", m, str(height), "row") as i):
                wide = _less(code, code.op(f"sub i64 {n}, {j}"), str(ACROSS))
                tall = _less(code, code.op(f"sub i64 {m}, {i}"), str(height))
                width = _round(code, tall, lanes)
                a, b = code.place(t, "%room", (i, k)), code.place(t, panels, (j, k))
                c = code.place(t, "%c", (code.op(f"add i64 {i0}, {i}"), "1"),
                        (code.op(f"add i64 {j0}, {j}"), "%apart"))
                for high in range(1, HIGH + 1):
                    with code.where(code.op(f"icmp eq i64 {width}, {high * lanes}")):
                        code.line(f"call void @tile{high}(ptr {a}, ptr {b}, ptr {c}, ptr {part}, "
                                  f"i64 %apart, i64 {k}, i64 {tall}, i64 {wide}, i1 {adds})")
    code.line("ret void")
    numbers = ("rows", "columns", "terms", "down_a", "along_a", "down_b", "along_b", "apart")
    parameters = ", ".join(["ptr %a", "ptr %b", "ptr %c", "ptr %room",
                            *[f"i64 %{n}" for n in numbers], "i1 %adds"])
    return code.function("internal void @product", parameters)


def _round(code: Code, n: str, lanes: int) -> str:
    """The next multiple of the lanes of a vector."""
    return code.op(f"and i64 {code.op(f'add i64 {n}, {lanes - 1}')}, {-lanes}")


ENTRY = """\
define void @gemm(<parameters>) #0 {
entry:
  %m = load i64, ptr %p2
  %n = load i64, ptr %p3
  %k = load i64, ptr %p4
  %lead_a = load i64, ptr %p7
  %lead_b = load i64, ptr %p9
  %lead_c = load i64, ptr %p12
  %short = icmp ult i64 %m, <least>
  %narrow = icmp ult i64 %n, <least>
  %few = icmp ult i64 %k, <least>
  %area = mul i64 %m, %n
  %work = mul i64 %area, %k
  %large = icmp ugt i64 %work, <most>
  %tiny = icmp ult i64 %work, <fewest>
  %either = or i1 %short, %narrow
  %any = or i1 %either, %few
  %outside = or i1 %tiny, %large
  %other = or i1 %any, %outside
  br i1 %other, label %theirs, label %ours
theirs:
  call void @blas_<letter>gemm(<parameters>)
  ret void
ours:
  %how_a = load i8, ptr %p0
  %how_b = load i8, ptr %p1
  %beta = load <type>, ptr %p10
  %adds = fcmp une <type> %beta, 0.0
  %plain_a = icmp eq i8 %how_a, 78
  %plain_b = icmp eq i8 %how_b, 78
  %down_a = select i1 %plain_a, i64 1, i64 %lead_a
  %along_a = select i1 %plain_a, i64 %lead_a, i64 1
  %down_b = select i1 %plain_b, i64 1, i64 %lead_b
  %along_b = select i1 %plain_b, i64 %lead_b, i64 1
  %swap = cmpxchg ptr @taken, i64 0, i64 1 acquire monotonic
  %free = extractvalue {i64, i1} %swap, 1
  br i1 %free, label %own, label %fresh
fresh:
  %block = call ptr @malloc(i64 <bytes>)
  %none = icmp eq ptr %block, null
  br i1 %none, label %theirs, label %own
own:
  %first = phi ptr [ @room, %ours ], [ %block, %fresh ]
  %bits = ptrtoint ptr %first to i64
  %back = sub i64 0, %bits
  %shift = and i64 %back, 63
  %room = getelementptr i8, ptr %first, i64 %shift
  call void @product(ptr %p6, ptr %p8, ptr %p11, ptr %room, i64 %m, i64 %n, i64 %k, i64 %down_a,
    i64 %along_a, i64 %down_b, i64 %along_b, i64 %lead_c, i1 %adds)
  br i1 %free, label %leave, label %drop
leave:
  store atomic i64 0, ptr @taken release, align 8
  ret void
drop:
  call void @free(ptr %block)
  ret void
}
"""


def _entry(letter: str, size: int, most: int, fewest: int) -> str:
    """The function that has BLAS's signature; programs call it with alpha 1 and beta 0 or 1."""
    parameters = [f"ptr %p{i}" for i in range(13)] + ["i64 %p13", "i64 %p14"]
    words = {"parameters": ", ".join(parameters), "letter": letter, "type": TYPES[letter],
             "least": LEAST, "most": most, "fewest": fewest, "bytes": _room(size) + BITS // 8}
    return fill(ENTRY, words)
