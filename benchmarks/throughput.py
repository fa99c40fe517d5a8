"""Cases a second of three ways to test the same kernels: `python benchmarks/throughput.py FOLDER`.

- `drawn`: a Hypothesis test of each kernel, 100 examples of lengths, options and values, compared by `assert_allclose`;
- `listed`: pytest parametrized over the signatures and values of kerneltest's plan, one jitted call a case;
- `kerneltest`: the plugin, on interpret mode; and, for scale, in two workers and on more backends.

The first two interpret Pallas calls as their authors would, by `interpret=True`. All are run in turn, so many rounds,
from an empty cache and again from what that left; the best round counts. Broken variants of the kernels are then
checked in turn until something is found. FOLDER gets `throughput.json` and its tables, `throughput.md`. Needs no GPU.
`--depth` is that of the plan.
"""

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import kerneltest as kt

ROOT = Path(__file__).parent.parent
SUITES = ("test_softmax", "test_matmul", "test_layer_norm", "test_attention")
SIMULATED = "interpret,simulate:sm_90,simulate:gfx942"
EXAMPLES = 100
COUNTS = "KERNELTEST_THROUGHPUT"  # the file for what the first two ways count
OTHERS = ("tracing", "compiling", "running", "expecting")  # JAX, XLA, the kernel and the oracle with its samples
_counts: Counter[str] = Counter()
_seen: set[Any] = set()


def pairings() -> Iterator[tuple[str, kt.Pairing]]:
    """The pairings of the suites, by name."""
    for suite in SUITES:
        for name, value in vars(import_module(f"suites.{suite}")).items():
            if isinstance(value, kt.Pairing):
                yield f"{suite}_{name}", value


def _interpreted() -> None:
    """Has every Pallas call interpreted, as its author would for a machine without a GPU."""
    from jax.experimental import pallas as pl

    if not isinstance(pl.pallas_call, functools.partial):
        pl.pallas_call = functools.partial(pl.pallas_call, interpret=True)  # type: ignore[assignment]


def _compared(pairing: kt.Pairing, signature: Any, leaves: dict[str, Any], call: Callable[..., Any]) -> None:
    """One case: the kernel, the oracle in float64, and a comparison whose outcome does not matter here."""
    import jax

    outputs = jax.tree.leaves(call(*leaves.values()))
    wide = {path: value.astype(np.float64) if value.dtype.kind == "f" else value for path, value in leaves.items()}
    with np.errstate(all="ignore"):
        given = pairing.assemble(wide, dict(signature.dims), dict(signature.statics), oracle=True)
        wanted = jax.tree.leaves(pairing.call_oracle(given))
    for output, value in zip(outputs, wanted, strict=True):
        np.allclose(np.asarray(output, np.float64), value, rtol=1e-2, atol=1e-2, equal_nan=True)
    _counts["cases"] += 1
    _seen.add(signature)


def _jitted(pairing: kt.Pairing, signature: Any) -> Callable[..., Any]:
    import jax

    names = [path for path, _ in signature.dtypes]

    def flat(*leaves: Any) -> Any:
        named = dict(zip(names, leaves, strict=True))
        values = pairing.assemble(named, dict(signature.dims), dict(signature.statics), oracle=False)
        return pairing.call_kernel(values)

    return jax.jit(flat)


def _write_counts() -> None:
    counts = {**_counts, "signatures": len(_seen)}
    Path(os.environ[COUNTS]).write_text(json.dumps(counts), encoding="utf-8")


def drawn_tests() -> dict[str, Callable[[], None]]:
    """A Hypothesis test for each pairing."""
    from hypothesis import HealthCheck, given, settings
    from hypothesis import strategies as st

    from kerneltest.plan.signatures import Signature, signatures

    _interpreted()

    def test_of(pairing: kt.Pairing) -> Callable[[], None]:
        longest = {name: max(dict(s.dims)[name] for s in signatures(pairing, "quick")) for name in pairing.dims}

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def test(data: Any) -> None:
            lengths = {
                name: data.draw(st.sampled_from(dim.values) if dim.values else st.integers(1, longest[name]))
                for name, dim in pairing.dims.items()
            }
            statics = {name: data.draw(st.sampled_from(options)) for name, options in pairing.options().items()}
            admitted = pairing.fit_lengths(lengths, statics)
            if admitted is None:
                return
            signature = Signature.from_choices(pairing, admitted, statics, {})
            rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
            present = signature.leaves(pairing)
            leaves = {
                path: rng.standard_normal(signature.shape(leaf)).astype(np.float32) for path, leaf in present.items()
            }
            _compared(pairing, signature, leaves, _jitted(pairing, signature))
            _write_counts()

        return test

    return {f"test_{name}": test_of(pairing) for name, pairing in pairings()}


def listed_tests(depth: str) -> dict[str, Callable[..., None]]:
    """A parametrized test for each pairing, over what kerneltest plans for it."""
    import pytest

    from kerneltest.plan.cases import value_cases
    from kerneltest.plan.families import GROUPS
    from kerneltest.plan.signatures import signature_dtypes

    _interpreted()

    def test_of(pairing: kt.Pairing) -> Callable[..., None]:
        cases = [
            case
            for dtype in signature_dtypes(pairing, depth)
            for group in GROUPS
            for case in value_cases(pairing, pairing.name, dtype, group, 0, depth)
        ]
        calls: dict[Any, Callable[..., Any]] = {}

        @pytest.mark.parametrize("case", cases, ids=[case.id for case in cases])
        def test(case: Any) -> None:
            call = calls.setdefault(case.signature, _jitted(pairing, case.signature))
            filled = case.fill(pairing)
            leaves = {path: filled[path] for path, _ in case.signature.dtypes}
            _compared(pairing, case.signature, leaves, call)

        return test

    return {f"test_{name}": test_of(pairing) for name, pairing in pairings()}


def _run(command: list[str], work: Path, **environment: str) -> dict[str, Any]:
    """Seconds and peak memory of a command."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environment}
    started = time.monotonic()
    with (work / "out.txt").open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, cwd=work, env=known, stdout=out, stderr=subprocess.STDOUT)
        _, _, used = os.wait4(process.pid, 0)
    return {"seconds": time.monotonic() - started, "MiB": used.ru_maxrss / 1024}


def _by_hand(way: str, work: Path, depth: str) -> dict[str, Any]:
    test = work / f"test_{way}.py"
    call = "drawn_tests()" if way == "drawn" else f"listed_tests({depth!r})"
    last = "def test_zz_counts():\n    throughput._write_counts()\n"
    test.write_text(
        f"from benchmarks import throughput\n\nglobals().update(throughput.{call})\n\n\n{last}", encoding="utf-8"
    )
    counts = work / "counts.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", str(test)]
    cache = {"JAX_COMPILATION_CACHE_DIR": str(work / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    cache["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    return {**_run(command, work, **{COUNTS: str(counts)}, **cache), **json.loads(counts.read_text(encoding="utf-8"))}


def _by_kerneltest(work: Path, depth: str, backends: str, workers: int) -> dict[str, Any]:
    from kerneltest.records.runs import read_runs

    report = work / "report"
    shutil.rmtree(report, ignore_errors=True)
    files = [str(ROOT / "suites" / f"{suite}.py") for suite in SUITES]
    command = [sys.executable, "-m", "pytest", "-p", "kerneltest", "-q", *files, "--kt-report", str(report)]
    command += ["--kt-depth", depth, "--kt-backends", backends, "-o", f"cache_dir={work / 'cache'}"]
    command += ["-n", str(workers)] if workers > 1 else []
    taken = _run(command, work)
    (run,) = read_runs(report)
    phases: Counter[str] = Counter()
    for path in report.glob("costs-*.json"):
        phases.update(json.loads(path.read_text(encoding="utf-8"))["seconds"])
    signatures = {(record.pairing, record.backend, record.signature) for record in run.records}
    by: dict[str, list[float]] = {}
    for record in run.records:
        name = f"{record.pairing.removeprefix('suites/test_').replace('.py::', ', ')}, {record.backend}"
        cases, seconds = by.setdefault(name, [0, 0.0])
        by[name] = [cases + 1, seconds + record.seconds]
    return {**taken, "cases": len(run.records), "signatures": len(signatures), "phases": dict(phases), "by": by}


WAYS: dict[str, Callable[[Path, str], dict[str, Any]]] = {
    "drawn": functools.partial(_by_hand, "drawn"),
    "listed": functools.partial(_by_hand, "listed"),
    "kerneltest": functools.partial(_by_kerneltest, backends="interpret", workers=1),
    "kerneltest, two workers": functools.partial(_by_kerneltest, backends="interpret", workers=2),
    "kerneltest, interpret and simulate": functools.partial(_by_kerneltest, backends=SIMULATED, workers=1),
    "kerneltest, interpret and simulate, two workers": functools.partial(_by_kerneltest, backends=SIMULATED, workers=2),
}


def measured(folder: Path, rounds: int, depth: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The best of some rounds of each way, cold and warm."""
    best: dict[str, dict[str, dict[str, Any]]] = {way: {} for way in WAYS}
    for _ in range(rounds):
        for way, run in WAYS.items():
            work = folder / "work"
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            for state in ("cold", "warm"):
                found = run(work, depth)
                if state not in best[way] or found["seconds"] < best[way][state]["seconds"]:
                    best[way][state] = found
                print(f"{way}, {state}: {found['cases']} cases in {found['seconds']:.1f} s", flush=True)
            shutil.rmtree(work)
    return best


def first_findings(count: int) -> list[dict[str, Any]]:
    """How long it takes to find the bugs of broken variants, a choice of all, by two ways in turn.

    Returns:
      for each: its name, and by way the seconds, and whether it was found in them.
    """
    from benchmarks import checkers
    from benchmarks.variants import VARIANTS

    ways: dict[str, Callable[[kt.Pairing], Any]] = {
        "drawn": checkers.hypothesis,
        "kerneltest": lambda pairing: checkers.kerneltest(pairing, "quick")["interpret"],
    }
    # Drawn tests by hand know float32 alone.
    known = [each for each in VARIANTS if all("float32" in leaf.dtypes for leaf in each.broken().leaves.values())]
    rows = []
    for variant in known[:: max(1, len(known) // count)] if count else ():
        row: dict[str, Any] = {"name": variant.name}
        for way, check in ways.items():
            found = check(variant.broken())
            row[way] = {"seconds": found.seconds, "found": bool(found.finding)}
        rows.append(row)
        print(row, flush=True)
    return rows


def findings_table(rows: list[dict[str, Any]]) -> str:
    """Broken variants: how many each way finds, and in what time."""
    lines = [
        "| broken variants | found | seconds to the finding, median | seconds for all |",
        "| --- | --- | --- | --- |",
    ]
    for way in ("drawn", "kerneltest"):
        taken = [row[way]["seconds"] for row in rows if row[way]["found"]]
        middle = f"{statistics.median(taken):.2f}" if taken else ""
        total = sum(row[way]["seconds"] for row in rows)
        lines.append(f"| {way} | {len(taken)} of {len(rows)} | {middle} | {total:.0f} |")
    return "\n".join(lines)


def table(best: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The results as a table, and where the plugin's time goes."""
    lines = ["| | cases | signatures | cases a second, cold | warm | MiB |", "| --- | --- | --- | --- | --- | --- |"]
    for way, states in best.items():
        cold, warm = states["cold"], states["warm"]
        rates = [f"{each['cases'] / each['seconds']:.1f}" for each in (cold, warm)]
        lines.append(
            f"| {way} | {cold['cases']} | {cold['signatures']} | {rates[0]} | {rates[1]} | {cold['MiB']:.0f} |"
        )
    cold = best["kerneltest"]["cold"]
    phases = {**cold["phases"], "start, collection, records and page": cold["seconds"] - sum(cold["phases"].values())}
    lines += ["", "| one process, cold | seconds | of the whole |", "| --- | --- | --- |"]
    lines += [f"| {each} | {taken:.1f} | {taken / cold['seconds']:.0%} |" for each, taken in phases.items()]
    own = sum(taken for each, taken in phases.items() if each not in OTHERS) / cold["seconds"]
    lines += [f"| kerneltest's own: all but {', '.join(OTHERS)} | | {own:.0%} |"]
    lines += ["", "| kernel, backend | cases | seconds | cases a second |", "| --- | --- | --- | --- |"]
    for name, (cases, taken) in sorted(best["kerneltest, interpret and simulate"]["cold"]["by"].items()):
        lines.append(f"| {name} | {cases} | {taken:.1f} | {cases / taken:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--depth", default="quick")
    parser.add_argument("--variants", type=int, default=20, help="about how many broken variants to check")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    best = measured(arguments.folder.resolve(), arguments.rounds, arguments.depth)
    rows = first_findings(arguments.variants)
    text = json.dumps({"rates": best, "findings": rows}, indent=1)
    (arguments.folder / "throughput.json").write_text(f"{text}\n", encoding="utf-8")
    about = f"JAX {version('jax')}, NumPy {np.__version__}, {os.cpu_count()} processors, depth {arguments.depth}"
    tables = f"{table(best)}\n\n{findings_table(rows)}"
    (arguments.folder / "throughput.md").write_text(f"{about}\n\n{tables}\n", encoding="utf-8")
    print(tables)


if __name__ == "__main__":
    main()
