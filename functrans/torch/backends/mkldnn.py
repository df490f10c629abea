"""``torch.backends.mkldnn``: accepted and without effect; oneDNN are not used."""

enabled = False


def is_available() -> bool:
    """False: it is not used."""
    return False


__all__ = ["enabled", "is_available"]
