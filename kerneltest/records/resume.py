"""Resuming an interrupted run: its records stay, everything else that it left is removed."""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby, islice
from pathlib import Path
from typing import BinaryIO

from kerneltest.core.failures import RecordError, UnusableInputError
from kerneltest.core.files import open_inside
from kerneltest.core.ids import RunShard
from kerneltest.core.verdicts import Verdict
from kerneltest.records.files import dumps
from kerneltest.records.record_files import line_of, read_end, read_plan, read_records, read_shard, shard_files
from kerneltest.records.result_cache import BEFORE, read_keys, replace_keys
from kerneltest.records.run_plan import CellKey, Plan, PlannedItem, digest_ids, plan_differences
from kerneltest.records.runs import RunRecords
from kerneltest.records.schema import Record

_OWN = ("run", "started", "project")  # fields that may differ: verdicts do not depend on them
_REMOVED = (
    "end.json", "running-*.txt", "crash-*.jsonl", "died-*.txt", "said-*.txt", "costs-*.json", "mutants-*.jsonl",
    "report.html",
)  # fmt: skip


def load_previous_plan(folder: Path) -> Plan:
    """Reads the plan of the run to resume; raises a RecordError if there is none, or it cannot be read."""
    if not (folder / "plan.json").exists():
        raise RecordError(
            f"{folder} holds no run to resume: drop --kt-resume, or name the folder of an interrupted run"
        )
    return read_plan(folder)


def resume_obstacles(before: Plan, now: Plan) -> Iterator[str]:
    """Yields the reasons why a run cannot resume another one, in words."""
    for field in fields(Plan):
        old, new = getattr(before, field.name), getattr(now, field.name)
        if field.name in _OWN or _in_any_order(old) == _in_any_order(new):
            continue
        if field.name == "environment":
            names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            yield ", ".join(f"{name} ({old.get(name, 'none')} then, {new.get(name, 'none')} now)" for name in names[:3])
        elif field.name == "pairings":
            changed = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
            yield f"the code or the declaration of {', '.join(changed[:3])}"
        elif field.name == "items":
            yield f"the items that are selected, or their cases ({len(old)} then, {len(new)} now)"
        else:
            yield f"{field.name} ({old!s:.60} then, {new!s:.60} now)"


def _in_any_order(value: object) -> object:
    """Returns a plan's items so that they equal the same ones in another order: plugins may shuffle them."""
    if not isinstance(value, tuple):
        return value
    return {(part.item, part.group) if isinstance(part, PlannedItem) else part: part for part in value}


def prepare_resume(folder: Path) -> None:
    """Gives each item's records, without families whose process died, a shard of their own; removes other files."""
    old, keys = shard_files(folder), read_keys(folder)
    seen: set[tuple[CellKey, str]] = set()
    written: dict[str, Path] = {}
    for path in folder.glob(f"{BEFORE}-*.tmp"):  # left by one that was interrupted here
        path.unlink()
    for item, records in groupby(read_records(folder), key=lambda record: record.item):
        written[item] = folder / f"{_shard_of(item)}.tmp"
        with open_inside(folder, written[item].name, "ab") as file:
            for record in records:
                whole = not record.case and record.verdict in (Verdict.CRASH, Verdict.HANG)
                if not whole and (record.cell, record.case) not in seen:  # an interrupted resume leaves duplicates
                    seen.add((record.cell, record.case))
                    file.write(line_of(record) + b"\n")
    for path in old:
        path.unlink()
    for item, path in written.items():
        path.replace(folder / f"records-{_shard_of(item)}.jsonl")
    replace_keys(folder, keys)
    for pattern in _REMOVED:
        for path in folder.glob(pattern):
            path.unlink()


def resume_item(folder: Path, item: str, *, is_same: bool) -> list[Record]:
    """Returns the records of an item in the run that is resumed, or deletes them unless the item is the same."""
    path = folder / f"records-{_shard_of(item)}.jsonl"
    if is_same:
        return list(read_shard(path))
    path.unlink(missing_ok=True)
    return []


def _shard_of(item: str) -> str:
    return f"{BEFORE}-{hashlib.sha256(item.encode()).hexdigest()[:16]}"


# Merging the shards of a run: they must be complete and belong to one plan.

_MOST_NAMED = 8  # missing shards

# Files that a merged run takes over from its shards.
_COPIED = ("records-*.jsonl*", "smallest-*.jsonl*", "mutants-*.jsonl*", "cases/*", "artifacts/*/*")


class JoinError(UnusableInputError):
    """Runs that are not the shards of one run; says which, why, and what to do."""


def part_of_plan(plan: Plan, items: Iterable[str], shard: str) -> Plan:
    """Returns the plan of one shard, such as `2/3`, with a digest by which the shards of one run are recognised."""
    mine = frozenset(items)
    kept = tuple(item for item in plan.items if item.item in mine)
    others = tuple(item for item in plan.items if item.item not in mine)
    return replace(plan, items=kept, elsewhere=others, shard=shard, whole=_digest_of_whole(plan, plan.items))


def _digest_of_whole(plan: Plan, items: Iterable[PlannedItem]) -> str:
    return digest_ids([*map(dumps, items), *map(dumps, plan.pairings.values())])


def merge_plans(runs: Sequence[RunRecords]) -> Plan:
    """Returns the plan of the run whose shards are given; a JoinError if one is missing, given twice, or of another."""
    if not runs:
        raise JoinError("there is no run to merge")
    names = [run.name or run.folder.name for run in runs]
    if whole := [name for run, name in zip(runs, names, strict=True) if not run.plan.shard]:
        raise JoinError(f"{whole[0]} is a whole run, not a shard: kerneltest report and summary take it as it is")
    first, count = runs[0], _shard(runs[0].plan, names[0]).count
    for run, name in zip(runs, names, strict=True):
        if (other := _shard(run.plan, name).count) != count:
            raise JoinError(f"{names[0]} and {name} belong to different runs: they have {count} and {other} shards")
        if differences := "; ".join(_differences(first.plan, run.plan)):
            raise JoinError(f"{names[0]} and {name} belong to different runs: {differences}")
        if _digest_of_whole(run.plan, (*run.plan.items, *run.plan.elsewhere)) != run.plan.whole:
            raise JoinError(f"{name} does not list all items of its run: run this shard again with this kerneltest")
    by_shard: dict[str, str] = {}
    for run, name in zip(runs, names, strict=True):
        if run.plan.shard in by_shard:
            raise JoinError(f"{by_shard[run.plan.shard]} and {name} are both shard {run.plan.shard}")
        by_shard[run.plan.shard] = name
    if (lacking := count - len(by_shard)) > 0:
        absent = (shard for i in range(1, count + 1) if (shard := str(RunShard(i, count))) not in by_shard)
        more = f" and {lacking - _MOST_NAMED} more" if lacking > _MOST_NAMED else ""
        named = f"{', '.join(islice(absent, _MOST_NAMED))}{more}"
        raise JoinError(f"shard{'s' * (lacking > 1)} {named} missing: run it, or name its folder")
    places = {name: place for place, name in enumerate(first.plan.pairings)}
    items = sorted((*first.plan.items, *first.plan.elsewhere), key=lambda item: places[item.pairing])
    problems = dict.fromkeys(problem for run in runs for problem in run.plan.problems)
    internal = dict.fromkeys(error for run in runs for error in run.plan.internal_errors)
    started = min(run.plan.started for run in runs)
    environment = {key: value for run in runs for key, value in run.plan.environment.items()}
    return replace(
        first.plan, items=tuple(items), shard="", whole="", elsewhere=(), problems=tuple(problems), started=started,
        environment=environment, internal_errors=tuple(internal),
    )  # fmt: skip


def _shard(plan: Plan, name: str) -> RunShard:
    try:
        if (shard := RunShard.parse(plan.shard)) is not None:
            return shard
    except ValueError:
        pass
    raise JoinError(f"{name} has no number of a shard, but {plan.shard!a}")


def _differences(one: Plan, other: Plan) -> list[str]:
    """Returns the differences of two plans because of which their shards do not belong together."""
    if found := [f"{name} is {a} and {b}" for name, a, b in plan_differences(one, other)]:
        return found
    if one.whole == other.whole:
        return []
    names = dict.fromkeys([*one.pairings, *other.pairings])
    unlike = [name for name in names if one.pairings.get(name) != other.pairings.get(name)]
    return [f"{name} is declared or written differently" for name in unlike] or ["they planned different cases"]


def failed_tests(runs: Sequence[RunRecords]) -> tuple[str, ...]:
    """Returns the tests other than pairings that failed in some shards; raises as `read_end`."""
    ends = [read_end(run.folder) for run in runs]
    return tuple(dict.fromkeys(name for end in ends if end is not None for name in end.failed_tests))


def copy_files(run: RunRecords, folder: Path) -> None:
    """Copies a shard's files into another folder. RecordError if two shards hold different files of one name."""
    number = _shard(run.plan, run.name).number
    for path in sorted(path for pattern in _COPIED for path in run.folder.glob(pattern)):
        name = path.relative_to(run.folder).as_posix()
        kind, dash, rest = name.partition("-")
        target = f"{kind}{dash}{number}.{rest}" if kind in ("records", "smallest", "mutants") else name
        with open_inside(run.folder, name) as file:
            if not (folder / target).exists():
                with open_inside(folder, target, "xb") as copy:
                    shutil.copyfileobj(file, copy)
            elif not _is_same(file, folder, target):
                raise RecordError(f"{path}: another shard has a different file of this name")


def _is_same(file: BinaryIO, folder: Path, name: str) -> bool:
    with open_inside(folder, name) as other:
        while (part := file.read(2**20)) == other.read(2**20):
            if not part:
                return True
    return False
