"""Results of benchmarks/tolerances.py as a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

# Why a twin is not found on every backend, told where it was measured not to.
WHY = {
    "matmul.tiled: the store is not masked": "interpret mode pads blocks, so nothing lies past the end",
    "matmul.tiled: the rows' mask is <= and not <": "interpret mode pads blocks, so nothing lies past the end",
    "matmul.tiled: the precision asked for is ignored": "on a CPU no product is of TF32 operands",
    "softmax.fused: the store is not masked": "interpret mode pads blocks, so nothing lies past the end",
    "softmax.fused: 1e-6 is added to the sum against division by zero": "at most 17 roundings, about what exp and "
    "a division may err there",
}
SHOWN = 20  # accusations of right kernels

Row = Mapping[str, Any]


def markdown(kept: Sequence[Mapping[str, Any]]) -> str:
    """The page of one or more results files: runs on several machines, of several seeds.

    Raises:
      ValueError: a run is in them twice, from machines alike.
    """
    _check_distinct(kept)
    rows = [row for file in kept for row in file["results"]]
    right = [row for row in rows if row["task"]["what"] == "right"]
    twins = [row for row in rows if row["task"]["what"] == "twins"]
    parts = [
        "# What tolerances say of right and of broken kernels",
        "Written by `python benchmarks/tolerances.py`; every number here was measured by it. No pairing's own "
        "`tolerance=` is used: each kernel is judged by `rounding()` and, beside it, by `conditioned()`. "
        "[Tolerances](../../docs/tolerances.md) says what these are.",
        "\n".join(f"- {_measured(file)}" for file in kept),
        *_totals(right, twins),
        *(_right(right) if right else ()),
        *(_twins(twins) if twins else ()),
    ]
    return "\n\n".join(parts) + "\n"


def _check_distinct(kept: Sequence[Mapping[str, Any]]) -> None:
    seen = set()
    for file in kept:
        for row in file["results"]:
            task = row["task"]
            key = (*file["environment"].values(), *(str(value) for value in task.values()), row["backend"])
            if key in seen:
                what = f"{task['name']} by {task['model']} on {row['backend']}, seed {task['seed']}"
                raise ValueError(f"{what} is kept twice: give each file once")
            seen.add(key)


def _measured(file: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in file["environment"].items())
    tasks = [row["task"] for row in file["results"]]
    asked = []
    for what, words in (("right", "right kernels"), ("twins", "twins")):
        of = [task for task in tasks if task["what"] == what]
        if of:
            depths = ", ".join(sorted({task["depth"] for task in of}))
            asked.append(f"{words} at depth {depths}, {_seeds({task['seed'] for task in of})}")
    return f"{facts}: {'; '.join(asked)}; {file['took']:.0f} s."


def _seeds(several: set[int]) -> str:
    low, high = min(several), max(several)
    if low == high:
        return f"seed {low}"
    return (
        f"seeds {low} to {high}" if len(several) == high - low + 1 else f"seeds {', '.join(map(str, sorted(several)))}"
    )


def _totals(right: Sequence[Row], twins: Sequence[Row]) -> Iterator[str]:
    table = []
    for backend in _backends([*right, *twins]):
        ours, theirs = (_of(right, backend=backend, model=model) for model in ("rounding", "conditioned"))
        broken = _of(twins, backend=backend)
        found = sum(1 for row in broken if row["findings"])
        judged = sum(1 for row in broken if row["cases"])
        table.append(
            [
                f"`{backend}`",
                _sum(ours, "cases"),
                _sum(ours, "findings"),
                _sum(ours, "empty"),
                f"{_sum(theirs, 'findings')} of {_sum(theirs, 'cases')}" if theirs else "–",
                f"{found} of {judged}" if judged else "–",
            ]
        )
    ours = _of(right, model="rounding")
    yield "## By backend"
    yield f"{_sum(ours, 'cases')} cases of right kernels, {_sum(ours, 'findings')} accused by `rounding()`."
    yield _table(
        ["backend", "cases", "accused", "compared nothing", "accused by `conditioned()`", "twins found"], table
    )


def _right(right: Sequence[Row]) -> Iterator[str]:
    table, idle, most = [], [], []
    for name in sorted({row["task"]["name"] for row in right}):
        before = len(table)
        for backend in _backends(right):
            ours, theirs = (
                _of(right, name=name, backend=backend, model=model) for model in ("rounding", "conditioned")
            )
            if not _sum(ours, "cases"):
                continue
            worst = max(ours, key=lambda row: row["used"])
            most += [worst["used"]] * bool(worst["used"])
            table.append(
                [
                    name,
                    f"`{backend}`",
                    _sum(ours, "cases"),
                    _sum(ours, "findings"),
                    f"{worst['used']:.2g} ({worst['family']})" if worst["used"] else "0",
                    f"{max(row['used'] for row in theirs):.2g}, {_sum(theirs, 'findings')} accused" if theirs else "–",
                    _share(ours),
                ]
            )
        idle += [name] * (len(table) == before)
    yield "## Right kernels"
    yield (
        (f"The largest error / bound lies between {min(most):.2g} and {max(most):.2g}; 0 where all" if most else "All")
        + " results are exact. The last column is the oracle's part of the processor time of a run on all of its "
        f"backends, with all samples: {_share(_of(right, model='rounding'))} over all."
    )
    yield _table(
        ["kernel", "backend", "cases", "accused", "largest error / bound", "by `conditioned()`", "oracle"], table
    )
    if idle:
        yield f"No backend here runs {', '.join(idle)}."
    said = [
        f"- {row['task']['name']}, `{row['backend']}`, seed {row['task']['seed']}: {message}"
        for row in _of(right, model="rounding")
        for message in row["messages"]
    ]
    if said:
        yield "Accusations" + (f", {SHOWN} of those kept" if len(said) > SHOWN else "") + ":"
        yield "\n".join(" ".join(line.split()) for line in said[:SHOWN])
    notes = sorted({(row["task"]["name"], note) for row in right for note in row["notes"]})
    if notes:
        yield "What is not followed:"
        yield "\n".join(f"- {name}: {note}" for name, note in notes)


def _twins(twins: Sequence[Row]) -> Iterator[str]:
    backends = _backends(twins)
    names = sorted({row["task"]["name"] for row in twins})
    found = {
        name: {backend for backend in backends if _sum(_of(twins, name=name, backend=backend), "findings")}
        for name in names
    }
    table = []
    for name in names:
        judged = {b for b in backends if _sum(_of(twins, name=name, backend=b), "cases")}
        cells = ["found" if b in found[name] else "**no**" if b in judged else "–" for b in backends]
        table.append([name, *cells, "" if judged <= found[name] else WHY.get(name, "not explained")])
    lost = [name for name in names if not found[name]]
    yield f"## Broken twins: {len(names) - len(lost)} of {len(names)} found"
    yield (
        "Each is a kernel with a small edit; a dash where a backend does not run it. Kernels that are missing here "
        "were not run."
    )
    yield _table(["twin", *(f"`{backend}`" for backend in backends), "why not everywhere"], table)


def _of(rows: Sequence[Row], *, backend: str = "", **task: str) -> list[Row]:
    return [
        row
        for row in rows
        if backend in ("", row["backend"]) and all(row["task"][key] == value for key, value in task.items())
    ]


def _backends(rows: Sequence[Row]) -> list[str]:
    """Those that judged anything, in alphabetical order."""
    return sorted({row["backend"] for row in rows if row["cases"]})


def _sum(rows: Sequence[Row], field: str) -> int:
    return sum(row[field] for row in rows)


def _share(rows: Sequence[Row]) -> str:
    """The oracle's part of the processor time; what a run took stands in its row of each backend."""
    took = {(str(row["task"]), row["oracle"], row["seconds"]) for row in rows}
    whole = sum(seconds for _, _, seconds in took)
    return f"{100 * sum(oracle for _, oracle, _ in took) / whole:.0f}%" if whole else "–"


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return tabulate(rows, head, tablefmt="github", disable_numparse=True)
