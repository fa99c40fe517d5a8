"""Runs a function on many keys in the processes of a pool, or on the pairings that a command line names."""

import argparse
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

Key, Result = TypeVar("Key"), TypeVar("Result")


def run_side_by_side(
    pool: Executor, function: Callable[[Key], Result], keys: Iterable[Key]
) -> Iterator[tuple[Key, Result]]:
    """Yields each key with the function's result, in the order in which the results arrive."""
    waiting = {pool.submit(function, key): key for key in keys}
    for future in as_completed(waiting):
        yield waiting[future], future.result()


def run_on_places(description: str | None, most: int, function: Callable[..., list[Result]]) -> list[Result]:
    """Reads places, --most, --depth and --jobs from the command line, and returns all results, in the places' order.

    Args:
      description: of the command.
      most: the default of `--most`.
      function: takes a place, `depth` and `most`; it runs in another process.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", metavar="FILE[::NAME]")
    parser.add_argument("--most", type=int, default=most)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--jobs", type=int, default=1)
    chosen = parser.parse_args()
    with ProcessPoolExecutor(chosen.jobs, mp_context=get_context("spawn")) as pool:
        results = pool.map(partial(function, depth=chosen.depth, most=chosen.most), chosen.places)
        return [each for result in results for each in result]
