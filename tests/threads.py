"""Work in other threads, to its end."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def at_once(work: Callable, arguments: Sequence) -> list:
    """What ``work`` gives for each of the arguments, in as many threads. Their errors are raised
    here."""
    with ThreadPoolExecutor(len(arguments)) as pool:
        jobs = [pool.submit(work, x) for x in arguments]
    return [job.result() for job in jobs]


def elsewhere(work: Callable, *arguments):
    """What ``work`` gives in another thread."""
    return at_once(lambda xs: work(*xs), [arguments])[0]
