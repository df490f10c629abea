"""Products of a matrix and a vector, for processors whose vectors BLAS leaves half empty.

They stand in BLAS's place as products of matrices do (``gemm.py``), and on one thread: a thread of
BLAS's that waits for a processor which others use takes a hundred times as long as the product.

Where lines of memory are summed along (``T`` to BLAS), eight dot products share what they read of
the vector; where lines are added up (``N``), eight lines share what they read of the result.
"""

from __future__ import annotations

from collections.abc import Callable

from functrans._compile.lowering.numbers import Code

# Bits of a vector, and lines that are taken together.
BITS, LINES = 512, 8
# Entries of a matrix from which more than two processors are worth BLAS's threads.
MOST = 1 << 20

NUMBERS = ("length", "lines", "lead")  # of a line, how many, and from one to the next


def text(letter: str, t: str, most: int) -> str:
    """The module of a function like ``dgemv``, for matrices of up to ``most`` entries."""
    size = {"double": 8, "float": 4}[t]
    lanes = BITS // 8 // size
    v, kind, bools = f"<{lanes} x {t}>", f"v{lanes}f{8 * size}", f"<{lanes} x i1>"
    parameters = ", ".join([f"ptr %p{i}" for i in range(11)] + ["i64 %p11"])
    return "\n".join([
        _dots(t, lanes), _sums(t, lanes), ENTRY.format(p=parameters, letter=letter, t=t, most=most),
        f"declare {v} @llvm.fma.{kind}({v}, {v}, {v})",
        f"declare {v} @llvm.masked.load.{kind}.p0(ptr, i32, {bools}, {v})",
        f"declare void @llvm.masked.store.{kind}.p0({v}, ptr, i32, {bools})",
        f"declare {t} @llvm.vector.reduce.fadd.{kind}({t}, {v})",
        f"declare void @blas_{letter}gemv({', '.join(['ptr'] * 11 + ['i64'])})",
        "attributes #0 = { nounwind }"])


ENTRY = """\
define void @gemv({p}) #0 {{
entry:
  %length = load i64, ptr %p1
  %lines = load i64, ptr %p2
  %lead = load i64, ptr %p5
  %step = load i64, ptr %p7
  %size = mul i64 %length, %lines
  %how = load i8, ptr %p0
  %plain = icmp eq i8 %how, 78
  %apart = icmp ne i64 %step, 1
  %large = icmp ugt i64 %size, {most}
  %other = or i1 %apart, %large
  br i1 %other, label %theirs, label %ours
theirs:
  call void @blas_{letter}gemv({p})
  ret void
ours:
  %beta = load {t}, ptr %p8
  %adds = fcmp une {t} %beta, 0.0
  br i1 %plain, label %added, label %along
added:
  call void @sums(ptr %p4, ptr %p6, ptr %p9, i64 %length, i64 %lines, i64 %lead,
    i1 %adds)
  ret void
along:
  call void @dots(ptr %p4, ptr %p6, ptr %p9, i64 %length, i64 %lines, i64 %lead,
    i1 %adds)
  ret void
}}
"""


class _Vectors(Code):
    """Lines about whole vectors of a type, and about the rest of a line behind them."""

    def __init__(self, t: str, lanes: int):
        super().__init__()
        self.t, self.lanes, self.size = t, lanes, {"double": 8, "float": 4}[t]
        self.vector, self.kind = f"<{lanes} x {t}>", f"v{lanes}f{8 * self.size}"
        self.whole = self.op(f"and i64 %length, {-lanes}")
        self.rest = self.op(f"sub i64 %length, {self.whole}")
        left = self.spread("i64", self.rest)
        places = ", ".join([f"i64 {i}" for i in range(lanes)])
        self.mask = self.op(f"icmp ult <{lanes} x i64> <{places}>, {left}")

    def spread(self, t: str, x: str) -> str:
        """A vector of one number."""
        vector = f"<{self.lanes} x {t}>"
        one = self.op(f"insertelement {vector} poison, {t} {x}, i64 0")
        return self.op(f"shufflevector {vector} {one}, {vector} poison, "
                       f"<{self.lanes} x i32> zeroinitializer")

    def vector_at(self, pointer: str, part: bool) -> str:
        if not part:
            return self.op(f"load {self.vector}, ptr {pointer}, align {self.size}")
        return self.op(f"call {self.vector} @llvm.masked.load.{self.kind}.p0(ptr {pointer}, "
                       f"i32 {self.size}, <{self.lanes} x i1> {self.mask}, "
                       f"{self.vector} zeroinitializer)")

    def set_vector(self, pointer: str, x: str, part: bool) -> None:
        if not part:
            self.line(f"store {self.vector} {x}, ptr {pointer}, align {self.size}")
            return
        self.line(f"call void @llvm.masked.store.{self.kind}.p0({self.vector} {x}, ptr {pointer}, "
                  f"i32 {self.size}, <{self.lanes} x i1> {self.mask})")

    def fma(self, x: str, y: str, z: str) -> str:
        v = self.vector
        return self.op(f"call {v} @llvm.fma.{self.kind}({v} {x}, {v} {y}, {v} {z})")

    def starts(self, i: str, count: int) -> list[str]:
        """Where ``count`` lines begin, from line ``i`` on."""
        lines = [i, *[self.op(f"add i64 {i}, {r}") for r in range(1, count)]]
        return [self.place(self.t, "%a", (line, "%lead")) for line in lines]

    def numbers(self, i: str, count: int) -> list[str]:
        """Vectors of one entry of ``x`` for each of these lines."""
        places = [self.place(self.t, "%x", (i, "1"), (str(r), "1")) for r in range(count)]
        return [self.spread(self.t, self.op(f"load {self.t}, ptr {place}")) for place in places]

    def by_lines(self, do: Callable[[str, int], None]) -> None:
        """``do`` what is to be done with several lines together, then with each that is left."""
        together = self.op(f"and i64 %lines, {-LINES}")
        with self.counted("0", together, str(LINES), "line") as i:
            do(i, LINES)
        with self.counted(together, "%lines", stem="line") as i:
            do(i, 1)

    def by_vectors(self, do: Callable[[str, bool], None]) -> None:
        """``do`` what is to be done with each vector of a line, then with the rest of it."""
        with self.counted("0", self.whole, str(self.lanes), "j") as j:
            do(j, False)
        with self.where(self.op(f"icmp ne i64 {self.rest}, 0")):
            do(self.whole, True)

    def finished(self, name: str) -> str:
        self.line("ret void")
        parameters = ", ".join(["ptr %a", "ptr %x", "ptr %y", *[f"i64 %{n}" for n in NUMBERS],
                                "i1 %adds"])
        return self.function(f"internal void @{name}", parameters)


def _dots(t: str, lanes: int) -> str:
    """Each entry of ``y`` is, or has added to it, the dot product of a line and ``x``."""
    code = _Vectors(t, lanes)
    v = code.vector
    sums = [f"%sum.{r}" for r in range(LINES)]
    code.lines[:0] = [f"  {name} = alloca {v}" for name in sums]

    def lines(i: str, count: int) -> None:
        starts = code.starts(i, count)
        for name in sums[:count]:
            code.line(f"store {v} zeroinitializer, ptr {name}")

        def add(j: str, part: bool) -> None:
            x = code.vector_at(code.place(t, "%x", (j, "1")), part)
            for start, name in zip(starts, sums, strict=False):
                a = code.vector_at(code.place(t, start, (j, "1")), part)
                total = code.fma(a, x, code.op(f"load {v}, ptr {name}"))
                code.line(f"store {v} {total}, ptr {name}")

        code.by_vectors(add)
        for r, name in enumerate(sums[:count]):
            total = code.op(f"load {v}, ptr {name}")
            total = code.op(f"call reassoc {t} @llvm.vector.reduce.fadd.{code.kind}({t} -0.0, "
                            f"{v} {total})")
            place = code.place(t, "%y", (i, "1"), (str(r), "1"))
            before = code.select(t, "%adds", code.op(f"load {t}, ptr {place}"), "-0.0")
            code.line(f"store {t} {code.op(f'fadd {t} {before}, {total}')}, ptr {place}")

    code.by_lines(lines)
    return code.finished("dots")


def _sums(t: str, lanes: int) -> str:
    """``y`` is, or has added to it, the sum of all lines, each times an entry of ``x``."""
    code = _Vectors(t, lanes)
    with code.where(code.op("xor i1 %adds, true")), code.counted("0", "%length") as j:
        code.line(f"store {t} 0.0, ptr {code.place(t, '%y', (j, '1'))}")
    short = code.op(f"icmp eq i64 {code.whole}, 0")
    with code.where(short):
        _sum_of_short(code)
    with code.where(code.op(f"xor i1 {short}, true")):
        code.by_lines(lambda i, count: _add_lines(code, i, count))
    return code.finished("sums")


def _sum_of_short(code: _Vectors) -> None:
    """Lines of less than a vector: the sum stays in registers."""
    v = code.vector
    sums = [f"%short.{r}" for r in range(4)]
    code.lines[:0] = [f"  {name} = alloca {v}" for name in sums]
    for name in sums:
        code.line(f"store {v} zeroinitializer, ptr {name}")

    def lines(i: str, count: int) -> None:
        for r, (start, x) in enumerate(zip(code.starts(i, count), code.numbers(i, count),
                                           strict=True)):
            name = sums[r % 4]
            total = code.fma(code.vector_at(start, True), x, code.op(f"load {v}, ptr {name}"))
            code.line(f"store {v} {total}, ptr {name}")

    code.by_lines(lines)
    total = code.vector_at("%y", True)
    for name in sums:
        total = code.op(f"fadd {v} {total}, {code.op(f'load {v}, ptr {name}')}")
    code.set_vector("%y", total, True)


def _add_lines(code: _Vectors, i: str, count: int) -> None:
    starts, xs = code.starts(i, count), code.numbers(i, count)

    def add(j: str, part: bool) -> None:
        place = code.place(code.t, "%y", (j, "1"))
        sums = [code.vector_at(place, part), "zeroinitializer"]
        for r, (start, x) in enumerate(zip(starts, xs, strict=True)):
            a = code.vector_at(code.place(code.t, start, (j, "1")), part)
            sums[r % 2] = code.fma(a, x, sums[r % 2])
        code.set_vector(place, code.op(f"fadd {code.vector} {', '.join(sums)}"), part)

    code.by_vectors(add)
