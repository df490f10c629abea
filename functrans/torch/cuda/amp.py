"""``torch.cuda.amp``: mixed precision on a GPU, which is off here; see ``torch.amp``."""

from __future__ import annotations

from typing import Any

from functrans.torch import amp
from functrans.torch.amp import GradScaler


class autocast(amp.autocast):
    """``torch.amp.autocast`` of "cuda": it warns that it is off, and changes nothing."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True):
        super().__init__("cuda", dtype, enabled, cache_enabled)


__all__ = ["GradScaler", "autocast"]
