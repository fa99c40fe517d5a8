"""Which pairings a session runs: each once, where a test module or class holds it under a name."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kerneltest.declare.pairing import Pairing
    from kerneltest.execute.planning import PairingPlan


@dataclass(frozen=True, slots=True, eq=False)
class Holder:
    """A test module or class that holds a pairing under a name.

    Attributes:
      pairing: that it holds.
      module: the name of the test module.
      name: under which; `norms[0]` in a list.
      plan: of the pairing under this name.
    """

    pairing: Pairing
    module: str
    name: str
    plan: PairingPlan


def is_unwritten(pairing: Pairing) -> bool:
    """Whether its oracle does nothing but raise NotImplementedError, as `kerneltest init` leaves it."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(pairing.oracle))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return False  # a lambda, a ufunc, or code without a file
    body = getattr(function, "body", None)
    if isinstance(body, list) and len(body) > 1 and ast.get_docstring(function) is not None:  # type: ignore[arg-type]
        body = body[1:]
    match body:
        case [ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError")))]:
            return True
    return False


def unwritten(pairing: Pairing) -> str:
    """What to do about a pairing whose oracle is unwritten, in a line."""
    return f"pairing {pairing.name!r}{_place(pairing)}: write its oracle, which raises NotImplementedError as yet"


def chosen(holders: Sequence[Holder]) -> list[Holder]:
    """One holder for each pairing: the module that made it, or else the first that was collected.

    A name of its own goes before a place in a list or a dict.
    """
    by_pairing: dict[int, list[Holder]] = {}
    for holder in holders:
        by_pairing.setdefault(id(holder.pairing), []).append(holder)
    return [min(held, key=lambda h: (h.module != h.pairing.module, "[" in h.name)) for held in by_pairing.values()]


def problems_of(holders: Sequence[Holder], made: Sequence[Pairing], whole: bool) -> Iterator[str]:
    """What is wrong with pairings that nothing holds, and with those that lack their oracle, each in a line.

    Args:
      holders: all of the session.
      made: the pairings that were made while it collected.
      whole: whether whole folders were collected; else only modules that were collected are asked about.
    """
    yield from (unwritten(each.pairing) for each in chosen(holders) if is_unwritten(each.pairing))
    held = {id(holder.pairing) for holder in holders}
    modules = {holder.module for holder in holders}
    for pairing in made:
        if id(pairing) not in held and (whole or pairing.module in modules):
            maker = f" by {pairing.module}" if pairing.module else ""
            yield (
                f"pairing {pairing.name!r}{_place(pairing)} was made{maker} and is run nowhere: let a test module or "
                "class hold it under a name of its own, or in a list or dict that has one"
            )


def _place(pairing: Pairing) -> str:
    code = getattr(pairing.oracle, "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""
