"""Runs a function on many keys in the processes of a pool."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, as_completed
from typing import TypeVar

Key, Result = TypeVar("Key"), TypeVar("Result")


def run_side_by_side(
    pool: Executor, function: Callable[[Key], Result], keys: Iterable[Key]
) -> Iterator[tuple[Key, Result]]:
    """Yields each key with the function's result, in the order in which the results arrive."""
    waiting = {pool.submit(function, key): key for key in keys}
    for future in as_completed(waiting):
        yield waiting[future], future.result()
