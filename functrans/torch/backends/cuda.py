"""``torch.backends.cuda``: accepted and without effect; there are no GPUs."""

import types
from typing import Any

matmul = types.SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=True,
                               allow_bf16_reduced_precision_reduction=True)
cufft_plan_cache = types.SimpleNamespace(size=0, max_size=0)


def is_built() -> bool:
    """False: there are no GPUs."""
    return False


def enable_flash_sdp(enabled: Any) -> None:
    """Accepted: attention is computed one way."""


enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp
flash_sdp_enabled = mem_efficient_sdp_enabled = is_built

__all__ = ["cufft_plan_cache", "enable_cudnn_sdp", "enable_flash_sdp", "enable_math_sdp",
           "enable_mem_efficient_sdp", "flash_sdp_enabled", "is_built", "matmul",
           "mem_efficient_sdp_enabled"]
