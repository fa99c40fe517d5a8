"""Which primitive lowers, for which dtype, on which target, in which JAX: measuring, reading and comparing maps.

The measuring itself is `lowering_probe.py`, a file of its own that every JAX since 0.4.35 can run.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

OLDEST = (0, 4, 35)
SCHEMA = 1
PYTHON = "3.12"  # JAX 0.4.35 to 0.12 all have wheels for it

# What each mark means, in the words of the reports.
MEANING = {
    "compiles": "Triton IR comes out, and the `triton` package compiles it",
    "lowers": "Triton IR comes out",
    "error": "it has a rule in JAX's lowering, which refuses this use; or the compiler refuses the IR",
    "unimplemented": "JAX's lowering has no rule for it, or for a primitive it is made of",
    "absent": "this JAX has no such function",
}
GOOD = frozenset({"lowers", "compiles"})

_PROBE = Path(__file__).with_name("probe.py")
Key = tuple[str, str, str]


class MapError(ValueError):
    """A map that cannot be measured, read or compared; says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """Cells that share primitive, mark and message: every dtype with every target.

    Attributes:
      primitive: as JAX calls it, with a variant in brackets.
      group: the heading it stands under.
      mark: one of `MEANING`.
      message: JAX's or the compiler's, cut short; "" for what lowers.
      dtypes, targets: of the cells.
    """

    primitive: str
    group: str
    mark: str
    message: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class LoweringMap:
    """What one JAX lowers.

    Attributes:
      jax, jaxlib, python: versions.
      triton: the version that compiled; "" if nothing was compiled.
      targets: those asked for.
      rows: in the order of the probes.
    """

    jax: str
    jaxlib: str
    python: str
    triton: str
    targets: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def version(self) -> tuple[int, ...]:
        """JAX's, to sort by."""
        return tuple(int(number) for number in re.findall(r"\d+", self.jax))

    @cached_property
    def cells(self) -> Mapping[Key, Row]:
        """The row of each (primitive, dtype, target)."""
        return {
            (row.primitive, dtype, target): row for row in self.rows for dtype in row.dtypes for target in row.targets
        }

    @cached_property
    def _by_primitive(self) -> Mapping[str, list[tuple[Key, Row]]]:
        found: dict[str, list[tuple[Key, Row]]] = {}
        for key, row in self.cells.items():
            found.setdefault(key[0], []).append((key, row))
        return found

    def of(self, primitive: str) -> Sequence[tuple[Key, Row]]:
        """The cells of one primitive."""
        return self._by_primitive.get(primitive, ())

    @cached_property
    def primitives(self) -> Mapping[str, str]:
        """Each primitive's group, in order."""
        return {row.primitive: row.group for row in self.rows}

    @property
    def counts(self) -> Mapping[str, int]:
        """Cells by mark."""
        found = Counter(row.mark for row in self.cells.values())
        return {mark: found[mark] for mark in MEANING if found[mark]}

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """The targets, those together that have the same mark in every cell."""
        columns: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
        for target in self.targets:
            column = tuple((key[0], key[1], row.mark) for key, row in self.cells.items() if key[2] == target)
            columns.setdefault(tuple(sorted(column)), []).append(target)
        return tuple(map(tuple, columns.values()))


@dataclass(frozen=True, slots=True)
class Change:
    """Cells that lowered before and do not now, or the reverse.

    Attributes:
      primitive: the primitive.
      before, after: marks; "refused when traced" where JAX refuses the dtype outside of Pallas already.
      dtypes, targets: of the cells.
      message: of the first of them, where it does not lower.
    """

    primitive: str
    before: str
    after: str
    dtypes: tuple[str, ...]
    targets: tuple[str, ...]
    message: str

    @property
    def stopped(self) -> bool:
        return self.before in GOOD


# --- Measuring --------------------------------------------------------------------------------------------------------


def measure(
    *,
    targets: Sequence[str] = (),
    primitives: Sequence[str] = (),
    compiled: bool = False,
    jax: str = "",
    python: str = PYTHON,
) -> LoweringMap:
    """The map of this environment's JAX, or of another version's in an environment that uv makes.

    No targets and no primitives mean all of them.

    Raises:
      MapError: an unknown target, primitive or version; no uv; or JAX does not start there.
    """
    command = [*(_environment(jax, python, compiled) if jax else [sys.executable]), "-W", "ignore", str(_PROBE)]
    command += [f"--targets={','.join(targets)}", f"--primitives={','.join(primitives)}", *["--compile"] * compiled]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or not jax}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env={**clean, "JAX_PLATFORMS": "cpu"})
    where = f"JAX {jax} with Python {python}" if jax else "this environment"
    if done.returncode:
        raise MapError(f"{where}: {_reason(done.stderr)}")
    return parse(done.stdout, where)


def _environment(version: str, python: str, compiled: bool) -> list[str]:
    if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
        raise MapError(f"{version!r} is not a version of JAX, such as 0.10.2")
    if tuple(map(int, version.split("."))) < OLDEST:
        raise MapError(f"JAX {version} is older than {'.'.join(map(str, OLDEST))}, the oldest that can be probed")
    uv = shutil.which("uv", path=os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)]))
    if uv is None:
        raise MapError(
            "--jax needs uv, which makes an environment for each version: pip install uv. "
            "Without --jax, this environment's JAX is probed; given files, maps are read"
        )
    # absl: some versions of Pallas import it and do not ask for it.
    packages = [f"jax=={version}", "absl-py", *["triton"] * compiled]
    wanted = [word for package in packages for word in ("--with", package)]
    return [uv, "run", "--quiet", "--no-project", "--isolated", "--python", python, *wanted, "python"]


def _reason(printed: str) -> str:
    """The line that says what went wrong: an explanation of uv's, or the last line."""
    lines = [" ".join(line.split()).removeprefix("lowering_probe: ") for line in printed.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"Because|cause:|error: No interpreter", line)]
    return (causes or lines[-1:] or ["it ended without a word"])[0].removeprefix("cause: ").removeprefix("error: ")


# --- Reading and writing ----------------------------------------------------------------------------------------------


def read(path: Path) -> LoweringMap:
    """Reads a map that was written as JSON.

    Raises:
      MapError: there is none, or it is corrupt, or of another schema.
    """
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise MapError(f"{path}: no readable map: {error}") from error


def parse(text: str, where: str) -> LoweringMap:
    """A map from its JSON; `where` it came from is for the message of a MapError."""
    try:
        data: dict[str, Any] = json.loads(text)
        if data.pop("schema") != SCHEMA:
            raise ValueError(f"this version reads schema {SCHEMA}")
        rows = tuple(
            Row(**{**row, "dtypes": tuple(row["dtypes"]), "targets": tuple(row["targets"])}) for row in data.pop("rows")
        )
        found = LoweringMap(**{**data, "targets": tuple(data["targets"])}, rows=rows)
        _check(found)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MapError(f"{where}: no readable map: {type(error).__name__}: {error}") from error
    return found


def _check(found: LoweringMap) -> None:
    texts = [found.jax, found.jaxlib, found.python, found.triton, *found.targets]
    for row in found.rows:
        texts += [row.primitive, row.group, row.message, *row.dtypes, *row.targets]
        if row.mark not in MEANING:
            raise ValueError(f"unknown mark {row.mark!r}")
        if unknown := set(row.targets) - set(found.targets):
            raise ValueError(f"targets {sorted(unknown)} are not among the map's")
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a version, name or message is not text")
    if not found.rows or sum(len(row.dtypes) * len(row.targets) for row in found.rows) != len(found.cells):
        raise ValueError("it has no cells, or one cell twice")


def dumps(found: LoweringMap) -> str:
    """The JSON of a map, one row a line so that two can also be compared by diff."""
    header = {"schema": SCHEMA, **asdict(found)}
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in header.pop("rows"))
    return json.dumps(header)[:-1] + ', "rows": [\n' + rows + "\n]}\n"


def save(path: Path, maps: Sequence[LoweringMap]) -> None:
    """Writes one map to a file, or any number to a folder, as `jax-VERSION.json` or `compiled-VERSION.json`."""
    if len(maps) == 1 and not path.is_dir():
        path.write_text(dumps(maps[0]), encoding="utf-8")
        return
    path.mkdir(parents=True, exist_ok=True)
    for found in maps:
        (path / f"{'compiled' if found.triton else 'jax'}-{found.jax}.json").write_text(dumps(found), encoding="utf-8")


# --- Comparing --------------------------------------------------------------------------------------------------------


def compare(old: LoweringMap, new: LoweringMap) -> tuple[Change, ...]:
    """What started and what stopped lowering, over the primitives and targets that both maps hold.

    Raises:
      MapError: they have nothing in common, or only one was compiled.
    """
    if bool(old.triton) != bool(new.triton):
        raise MapError("one map was compiled and the other only lowered: measure both with --compile, or both without")
    targets = [target for target in new.targets if target in old.targets]
    primitives = old.primitives.keys() & new.primitives.keys()
    if not targets or not primitives:
        raise MapError("the two maps have no target or no primitive in common")
    changed: dict[tuple[str, str, str, str], dict[str, str]] = {}
    for key in dict.fromkeys([*new.cells, *old.cells]):
        primitive, dtype, target = key
        if primitive not in primitives or target not in targets:
            continue
        was, now = old.cells.get(key), new.cells.get(key)
        before, after = (row.mark if row else "refused when traced" for row in (was, now))
        if (before in GOOD) != (after in GOOD):
            bad = now if before in GOOD else was
            changed.setdefault((primitive, before, after, target), {})[dtype] = bad.message if bad else ""
    merged: dict[tuple[str, str, str, tuple[str, ...]], dict[str, str]] = {}
    for (primitive, before, after, target), messages in changed.items():
        first = next(iter(messages.values()))
        merged.setdefault((primitive, before, after, tuple(messages)), {})[target] = first
    return tuple(
        Change(primitive, before, after, dtypes, tuple(messages), next(iter(messages.values())))
        for (primitive, before, after, dtypes), messages in merged.items()
    )
