"""``torch.backends``: switches of libraries that are not there. Setting one changes nothing."""

from functrans.torch.backends import cuda, cudnn, mkldnn, mps

__all__ = ["cuda", "cudnn", "mkldnn", "mps"]
