"""What is told of compiling where ``config(log="compile")`` asks for it."""

from __future__ import annotations

from functrans.config import settings


def tell(text: str) -> None:
    """Log a line as a warning, which Python shows unless it is told otherwise."""
    if settings().log is not None:
        import logging  # lazy: few ask for it

        logging.getLogger("functrans").warning("%s", text)
