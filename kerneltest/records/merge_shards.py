"""Merging the shards of a run: they must be complete and belong to one plan."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from kerneltest.records.files import RecordError, open_inside
from kerneltest.records.run_plan import Plan, digest_ids, plan_differences
from kerneltest.records.runs import RunRecords
from kerneltest.records.strict_json import dumps

# Files that a merged run takes over from its shards.
_COPIED = ("records-*.jsonl*", "smallest-*.jsonl*", "cases/*", "artifacts/*/*")


class JoinError(ValueError):
    """Runs that are not the shards of one run; says which, why, and what to do."""


def part_of_plan(plan: Plan, items: Iterable[str], shard: str) -> Plan:
    """Returns the plan of one shard, with a digest by which the shards of one run are recognised.

    Args:
      plan: the plan of the whole run.
      items: node ids of the shard's items.
      shard: its name, such as `2/3`.
    """
    mine = frozenset(items)
    whole = digest_ids([*map(dumps, plan.items), *map(dumps, plan.pairings.values())])
    kept = tuple(item for item in plan.items if item.item in mine)
    return replace(plan, items=kept, shard=shard, whole=whole)


def merge_plans(runs: Sequence[RunRecords]) -> Plan:
    """Returns the plan of the run whose shards are given.

    Raises:
      JoinError: a shard is missing or given twice, a run is not a shard, or two shards belong to different runs.
    """
    if not runs:
        raise JoinError("there is no run to merge")
    names = [run.name or run.folder.name for run in runs]
    if whole := [name for run, name in zip(runs, names, strict=True) if not run.plan.shard]:
        raise JoinError(f"{whole[0]} is a whole run, not a shard: kerneltest report and summary take it as it is")
    first = runs[0]
    for run, name in zip(runs[1:], names[1:], strict=True):
        if told := "; ".join(_differences(first.plan, run.plan)):
            raise JoinError(f"{names[0]} and {name} belong to different runs: {told}")
    count = int(first.plan.shard.partition("/")[2])
    by_shard: dict[str, str] = {}
    for run, name in zip(runs, names, strict=True):
        if run.plan.shard in by_shard:
            raise JoinError(f"{by_shard[run.plan.shard]} and {name} are both shard {run.plan.shard}")
        by_shard[run.plan.shard] = name
    if missing := [f"{i}/{count}" for i in range(1, count + 1) if f"{i}/{count}" not in by_shard]:
        raise JoinError(f"shard{'s' * (len(missing) > 1)} {', '.join(missing)} missing: run it, or name its folder")
    places = {name: place for place, name in enumerate(first.plan.pairings)}
    items = sorted((item for run in runs for item in run.plan.items), key=lambda item: places[item.pairing])
    problems = dict.fromkeys(problem for run in runs for problem in run.plan.problems)
    started = min(run.plan.started for run in runs)
    environment = {key: value for run in runs for key, value in run.plan.environment.items()}
    return replace(
        first.plan, items=tuple(items), shard="", whole="", problems=tuple(problems), started=started,
        environment=environment,
    )  # fmt: skip


def _differences(one: Plan, other: Plan) -> list[str]:
    """Returns the differences of two plans because of which their shards do not belong together."""
    counts = [plan.shard.partition("/")[2] for plan in (one, other)]
    if len(set(counts)) > 1:
        return [f"they have {' and '.join(counts)} shards"]
    if told := [f"{name} is {a} and {b}" for name, a, b in plan_differences(one, other)]:
        return told
    if one.whole == other.whole:
        return []
    names = dict.fromkeys([*one.pairings, *other.pairings])
    unlike = [name for name in names if one.pairings.get(name) != other.pairings.get(name)]
    return [f"{name} is declared or written differently" for name in unlike] or ["they planned different cases"]


def copy_files(run: RunRecords, folder: Path) -> None:
    """Copies a shard's records, reproducers, inputs and artifacts into another folder.

    Raises:
      OSError: a file cannot be read or written.
      RecordError: two shards hold different files of one name.
    """
    number = run.plan.shard.partition("/")[0]
    for path in sorted(path for pattern in _COPIED for path in run.folder.glob(pattern)):
        name = path.relative_to(run.folder).as_posix()
        kind, dash, rest = name.partition("-")
        target = f"{kind}{dash}{number}.{rest}" if kind in ("records", "smallest") else name
        with open_inside(run.folder, name) as file:
            if not (folder / target).exists():
                with open_inside(folder, target, "xb") as copy:
                    shutil.copyfileobj(file, copy)
            elif not _is_same(file, folder, target):
                raise RecordError(f"{path}: another shard has a different file of this name")


def _is_same(file: BinaryIO, folder: Path, name: str) -> bool:
    """Compares a file with one in a run's folder."""
    with open_inside(folder, name) as other:
        while (part := file.read(2**20)) == other.read(2**20):
            if not part:
                return True
    return False
