"""``torch.backends``: switches of libraries that are not there. Setting one changes nothing."""

from functrans.torch.backends import cudnn

__all__ = ["cudnn"]
