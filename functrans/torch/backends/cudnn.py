"""``torch.backends.cudnn``: accepted and without effect; there is no cuDNN."""

enabled = benchmark = allow_tf32 = False
deterministic = True


def is_available() -> bool:
    """False: there is no cuDNN."""
    return False


def version() -> None:
    """None: there is no cuDNN."""


__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available", "version"]
