"""What LLVM is told of a loop, behind its last branch, and the metadata that this refers to."""

from __future__ import annotations

from itertools import accumulate

from functrans._compile.schedule.kernels import Kernel

PLAIN = ", !llvm.loop !0"  # as it stands
UNROLLED = ", !llvm.loop !2"  # written out; its length has to be known
APART = ", !llvm.loop !4"  # in many lanes that are added up apart
DEEP = ", !llvm.loop !6"  # several vectors at once, since each waits for itself

# Length of a chain of operations, each on the result of the one before, from which on it pays: with
# 75 of them, a processor that holds 400 works on five vectors at a time, and could on eight.
CHAIN = 24
# Registers that a vector may take for itself at any time, where there are 32.
LIVE = 3


def metadata(wide: bool) -> str:
    """The definitions; ``wide``: vectors have 512 bits, of which LLVM takes enough by itself."""
    several = "!{!4}" if wide else "!{!4, !5}"
    deep = "!{!6, !5}" if wide else "!{!6}"  # with vectors of 256 bits there are 16 registers
    return f"""\
!0 = distinct !{{!0, !1}}
!1 = !{{!"llvm.loop.vectorize.enable", i1 false}}
!2 = distinct !{{!2, !3}}
!3 = !{{!"llvm.loop.unroll.full"}}
!4 = distinct {several}
!5 = !{{!"llvm.loop.interleave.count", i32 8}}
!6 = distinct {deep}
"""


def is_deep(k: Kernel) -> bool:
    """Whether cheap operations of a kernel are a long chain, and no sum depends on their order."""
    if len(k.ops) < CHAIN or any([r.dtype.kind in "fc" for r in k.reductions]):
        return False
    if not all([op.row.facts.cheap and not op.windows for op in k.ops]):
        return False
    depth: dict[str, int] = {}
    last: dict[str, int] = {}
    for i, op in enumerate(k.ops):
        names = [a for a in op.args if isinstance(a, str)]
        depth[op.name] = 1 + max([depth.get(a, 0) for a in names], default=0)
        last.update(dict.fromkeys(names, i))
    for x in (*k.stores, *k.reductions):
        if isinstance(x.value, str):
            last[x.value] = len(k.ops)
    change = [0] * (len(k.ops) + 1)  # in the number of values that are read later
    for i, name in [*[(0, x.name) for x in k.loads], *[(i, op.name) for i, op in enumerate(k.ops)]]:
        change[i] += 1
        change[last.get(name, i)] -= 1
    live = max(accumulate(change))
    return max(depth.values()) >= CHAIN and live <= LIVE
