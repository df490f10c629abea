"""``torch.distributions.transforms``: invertible functions and the slopes of their volumes."""

from functrans.torch.distributions.composed import (
    CatTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    IndependentTransform,
    PositiveDefiniteTransform,
    ReshapeTransform,
    StackTransform,
)
from functrans.torch.distributions.entrywise import (
    AbsTransform,
    AffineTransform,
    ComposeTransform,
    ExpTransform,
    LowerCholeskyTransform,
    PowerTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    _InverseTransform,
    identity_transform,
)

assert _InverseTransform  # which other packages import
__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform",
    "CumulativeDistributionTransform", "ExpTransform", "IndependentTransform",
    "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform",
    "StickBreakingTransform", "TanhTransform", "Transform", "identity_transform",
]
