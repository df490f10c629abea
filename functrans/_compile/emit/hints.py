"""What LLVM is told of a loop, behind its last branch, and the metadata that this refers to."""

from __future__ import annotations

PLAIN = ", !llvm.loop !0"  # as it stands
UNROLLED = ", !llvm.loop !2"  # written out; its length has to be known
APART = ", !llvm.loop !4"  # in many lanes that are added up apart


def metadata(wide: bool) -> str:
    """The definitions; ``wide``: vectors have 512 bits, of which LLVM takes enough by itself."""
    several = "!{!4}" if wide else "!{!4, !5}"
    return f"""\
!0 = distinct !{{!0, !1}}
!1 = !{{!"llvm.loop.vectorize.enable", i1 false}}
!2 = distinct !{{!2, !3}}
!3 = !{{!"llvm.loop.unroll.full"}}
!4 = distinct {several}
!5 = !{{!"llvm.loop.interleave.count", i32 8}}
"""
