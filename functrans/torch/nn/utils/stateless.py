"""``torch.nn.utils.stateless``: where ``functional_call`` was before ``torch.func``."""

from functrans.torch.func import functional_call

__all__ = ["functional_call"]
