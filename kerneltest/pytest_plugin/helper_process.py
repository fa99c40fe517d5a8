"""A helper process: it collects the items of the session again, and judges the cases that its owner sends it."""

from __future__ import annotations

import hashlib
import logging
import os
import pdb
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from kerneltest.backends.disk_cache import disk_cache
from kerneltest.core.processes import depend_on_parent
from kerneltest.core.runtime import blas_threads, retain_freed_memory, show_warnings_once, throttle_gc
from kerneltest.core.verdicts import Verdict
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.runner import run_case
from kerneltest.execute.value_groups import ValueGroup
from kerneltest.plan.explicit import AnyCase
from kerneltest.pytest_plugin.crash_reports import UncollectedError
from kerneltest.pytest_plugin.executor import PytestArguments
from kerneltest.pytest_plugin.recollection import ItemsByName, collect
from kerneltest.records.schema import Record
from kerneltest.records.sources import describe_pairing
from kerneltest.trace.jax_environment import jax_settings
from kerneltest.trace.tracing import without_debugging

_EVIDENCE_SECONDS = 10.0  # for all findings of a pairing: less than the owner's patience


class _Unlimited(dict[tuple[str, str], float]):
    """Fractions of bounds of which none is the largest so far: only the owner knows them all."""

    def get(self, key: object, default: object = None) -> float:
        return float("inf")


@dataclass(frozen=True, slots=True)
class HelperSetup:
    """The setup of a helper process.

    Attributes:
      arguments: of pytest, to collect the same items as the owner.
      started: when the owner did, in seconds since 1970. A helper that finds a module saved since then judges nothing,
        since the owner may have imported another version.
      executables: folder that keeps executables between runs; None to keep none.
      gpu_fraction: the share of a GPU's memory that JAX may allocate in the helper; 0 for JAX's default.
      makes_digests: whether the owner needs digests of cases for the keys of its items.
    """

    arguments: PytestArguments
    started: float
    executables: Path | None = None
    gpu_fraction: float = 0.0
    makes_digests: bool = False


class JudgedCases(NamedTuple):
    """The answer of a helper.

    Attributes:
      records: of the cases that passed, and of those with wrong values. The owner judges all others itself.
      counts: of traces, compilations and oracle evaluations.
      seconds: in each phase.
      digests: of what the verdicts follow from, by group and case, if the owner needs them.
    """

    records: Sequence[Record]
    counts: Mapping[str, int]
    seconds: Mapping[str, float]
    digests: Mapping[tuple[str, str], str]


class Question(NamedTuple):
    """A question of the owner.

    Attributes:
      item: the name of an item.
      group: the name of one of its groups.
      ids: of cases of one signature.
      description: of the item in the owner, by `describe`. If it differs here, no case is judged.
    """

    item: str
    group: str
    ids: Sequence[str]
    description: str


def serve(connection: Connection, setup: HelperSetup) -> None:
    """Collects all items of the session, and then judges the cases that the owner sends.

    Args:
      connection: to the owner. It gets True once this process can judge cases, and then a `JudgedCases` for each
        `Question`.
      setup: of this process.
    """
    _separate(setup)
    words = (*setup.arguments.words, "--no-summary")  # for which plugins import more
    items: ItemsByName = {}
    with suppress(UncollectedError):
        items = collect(replace(setup.arguments, words=words))
    if not items or _was_any_module_saved(setup.started):
        return
    sys.breakpointhook = pdb.set_trace = _refuse_debugger  # the terminal belongs to the owner
    judge = _Judge(items, setup)
    with suppress(EOFError, OSError):  # the owner has ended
        connection.send(True)
        while True:
            connection.send(judge.answer(connection.recv()))


def _separate(setup: HelperSetup) -> None:
    """Separates this process from its owner: signals, output, log files, and the memory of a GPU."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner ends this process
    depend_on_parent()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    sys.stdout = sys.stderr = open(nowhere, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # to the end
    logging.getLogger().handlers.clear()  # of the owner's pytest, if this process was forked
    os.chdir(setup.arguments.folder)
    if setup.gpu_fraction:  # which JAX reads when it first uses the GPU
        os.environ |= {
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{setup.gpu_fraction:.4f}",
        }


def _refuse_debugger(*_: object, **__: object) -> None:
    """Raises, so that the owner judges the case, and stops there itself."""
    raise RuntimeError("a helper process has no debugger")


def _was_any_module_saved(since: float) -> bool:
    """Returns whether the owner may have imported another version of a module; `since` is in seconds since 1970."""
    files = (getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values()))
    return any(_when_saved(file) >= since for file in files if file)


def _when_saved(file: str) -> float:
    try:
        return Path(file).stat().st_mtime
    except OSError:
        return 0.0


def describe(item: Item) -> str:
    """Returns a digest of what the verdicts of an item depend on besides its code: JAX's settings, the declaration."""
    return hashlib.sha256(f"{jax_settings()} {describe_pairing(item.pairing)}".encode()).hexdigest()


@dataclass(slots=True)
class _Judge:
    """Judges cases of the session's items."""

    items: ItemsByName
    setup: HelperSetup
    cache: Cache = field(default_factory=Cache)
    cases: dict[tuple[str, str], Mapping[str, AnyCase]] = field(default_factory=dict)

    def answer(self, asked: Question) -> JudgedCases:
        """Judges the cases of a question."""
        item = next((part for part in self.items.get(asked.item, ()) if part.group.name == asked.group), None)
        if item is None or describe(item) != asked.description:
            return JudgedCases((), {}, {}, {})
        cache = self.cache
        cache.switch_to(item.pairing, item.dtype)
        cache.largest_fraction = _Unlimited() if isinstance(item.group, ValueGroup) else {}
        cache.evidence_seconds = min(cache.evidence_seconds, _EVIDENCE_SECONDS)
        cases = [self._case(item, each) for each in asked.ids]
        cache.group_cases = {cases[0].signature: cases}
        journal = cache.process.journal
        counts, seconds = Counter(journal.counts), dict(journal.spent)
        cache.process.digests = {} if self.setup.makes_digests else None
        journal.start(item.name)
        retain_freed_memory()
        with ExitStack() as stack:
            for context in (without_debugging(), show_warnings_once(), throttle_gc(), blas_threads()):
                stack.enter_context(context)
            if self.setup.executables is not None:
                stack.enter_context(disk_cache(self.setup.executables))
            records = list(filter(None, (_record_of(run_case(item, case, cache)) for case in cases)))
        journal.stop()
        is_sound = not cache.process.take_internal_failures()  # the owner is to meet them, too
        return JudgedCases(
            records if is_sound else (),
            dict(journal.counts - counts),
            {phase: spent - seconds.get(phase, 0.0) for phase, spent in journal.spent.items()},
            cache.process.digests or {},
        )

    def _case(self, item: Item, case: str) -> AnyCase:
        key = item.name, item.group.name
        if key not in self.cases:
            self.cases = {key: {each.id: each for each in item.cases()}}
        return self.cases[key][case]


def _record_of(outcome: Outcome) -> Record | None:
    """Returns the record of a case that passed or has wrong values; None for any other."""
    verdict = outcome.record.verdict
    return outcome.record if verdict is Verdict.PASS or (outcome.comparison and verdict.is_finding) else None
