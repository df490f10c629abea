"""``torch.backends.mps``: accepted and without effect; Apple's GPUs are not used."""

enabled = False


def is_available() -> bool:
    """False: it is not used."""
    return False


is_built = is_available

__all__ = ["enabled", "is_available", "is_built"]
