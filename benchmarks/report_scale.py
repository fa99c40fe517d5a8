"""Size of a report and the time to open and to filter it, by number of cases: `python benchmarks/report_scale.py`.

The records are made up, the same in every call. Times are those of a Chromium found on PATH, driven by Playwright
(`pip install 'kerneltest[browser]'`), from the address to the last paint. Elapsed time and the processor time of the
page's own process are shown. The limit applies to processor time, which other work on the machine hardly changes.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from kerneltest.backends.registry import ALL, resolve
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence, Pattern, PatternKind, Window
from kerneltest.records.record_files import RecordWriter, write_end, write_plan
from kerneltest.records.run_plan import End, FunctionSource, PairingSummary, Plan, PlannedItem
from kerneltest.records.runs import read_all
from kerneltest.records.schema import Record
from kerneltest.report.html.page import write_html

PAIRINGS = tuple(f"suites/test_kernel_{i // 4}.py::pairing_{i}" for i in range(40))
BACKENDS = resolve([ALL])
DTYPES = ("float32", "bfloat16", "float16")
FAMILIES = tuple(("structural", f"structural_{i}") for i in range(7)) + tuple(
    ("numeric", f"numeric_{i}") for i in range(13)
)
LIMIT = 1.5  # processor seconds, to open and to filter
CODE = "".join(f"    value_{i} = load(x_ref.at[{i}], mask=inside, other=0) * {i}\n" for i in range(60))


def records(cases: int) -> Iterator[Record]:
    """Made-up records: one in fifty a finding, the first of each kind with a picture."""
    rng = random.Random(cases)
    seen: Counter[tuple[str, ...]] = Counter()
    signatures = -(-cases // (len(PAIRINGS) * len(BACKENDS) * len(DTYPES) * len(FAMILIES)))
    everything = product(PAIRINGS, BACKENDS, DTYPES, FAMILIES, range(signatures))
    for number, (pairing, backend, dtype, (group, family), i) in enumerate(islice(everything, cases)):
        case = f"{rng.getrandbits(64):016x}"
        base = Record(
            item=f"{pairing}[{backend.id}-{dtype}-{group}]",
            pairing=pairing,
            backend=backend.id,
            tier=backend.tier,
            dtype=dtype,
            group=group,
            family=family,
            signature=f"m={33 + i},n={129 + number % 5},{dtype}",
            dims={"m": 33 + i, "n": 129 + number % 5},
            target="",
            case=case,
            verdict=Verdict.PASS,
            compared=4096,
            bound_fraction=rng.lognormvariate(-3, 1.5) if group == "numeric" else None,
            tolerance="dot(over=k, accumulate=float32, slope=1)",
            ulps=tuple(rng.randrange(4096) for _ in range(5)),
        )
        if rng.random() >= 0.02:
            yield base
            continue
        first = not seen[pairing, backend.id, family]
        seen[pairing, backend.id, family] += 1
        yield _finding(base, rng, window=first)


def _finding(base: Record, rng: random.Random, *, window: bool) -> Record:
    values = tuple(float(f"{rng.gauss(0, 1):.7g}") for _ in range(1024 * window))
    shown = Window(
        "", base.dtype, (64, 64), (16, 32), (32, 32), (16, 16), values,
        expected=tuple(float(f"{value + 1e-3:.7g}") for value in values),
        bound=tuple(float(f"{abs(value) * 1e-6:.3g}") for value in values),
        wrong="".join("1" if rng.random() < 0.3 else "0" for _ in values),
    )  # fmt: skip
    evidence = Evidence(
        index=(20, 40), block="m=1 n=2", wrong_blocks=(1, 16), actual=1.0,
        pattern=Pattern(PatternKind.ONE_BLOCK, "m", 1, 4),
        expected=2.0, bound=1e-6, arguments={"x": "float32[64, 64] [[1 2 3 ...]]"}, file=f"cases/{base.case}.npz",
        window=shown if window else None,
    )  # fmt: skip
    message = f"{rng.randrange(1, 4096)} of 4096 elements wrong, only in block 1 of m (4 blocks); worst at [20, 40]"
    verdict = rng.choice((Verdict.MISMATCH, Verdict.SPECIAL_MISMATCH, Verdict.RACE, Verdict.OUT_OF_BOUNDS))
    return Record(**{**_fields(base), "verdict": verdict, "message": message, "wrong": 7, "evidence": evidence})


def _fields(record: Record) -> dict[str, object]:
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


def synthesize(folder: Path, cases: int) -> Path:
    """Writes the plan and the records of a run of so many made-up cases."""
    folder.mkdir()
    writer = RecordWriter(folder, "main")
    items: dict[str, tuple[Record, Counter[str]]] = {}
    for record in records(cases):
        writer.write(record)
        items.setdefault(record.item, (record, Counter()))[1][record.family] += 1
    writer.close()
    source = FunctionSource("kernels/kernel.py", ((10, f"def kernel(x):\n{CODE}    return x\n"),))
    declared = PairingSummary({"x": "array [m n] of float32", "dim m": "from 1; block 16"}, source, source)
    planned = tuple(
        PlannedItem(name, r.pairing, r.backend, r.tier, r.dtype, r.group, dict(families))
        for name, (r, families) in items.items()
    )
    pairings = {record.pairing: declared for record, _ in items.values()}
    write_plan(folder, Plan(planned, 0, "standard", {"jax": "0"}, {}, {}, pairings=pairings))
    write_end(folder, End("", cases))
    return folder


@dataclass(frozen=True, slots=True)
class Times:
    """The duration of a step in seconds: elapsed time, and the processor time that the page's process used."""

    elapsed: float
    processor: float


def timed(page_file: Path) -> dict[str, Times]:
    """Times to open the page, and to filter it in each of three ways."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        devtools = page.context.new_cdp_session(page)
        devtools.send("Performance.enable")

        def processor() -> float:
            metrics = devtools.send("Performance.getMetrics")["metrics"]
            return next(each["value"] for each in metrics if each["name"] == "ProcessTime")

        started = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]", timeout=60_000)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        times = {"open": Times(time.perf_counter() - started, processor())}
        for name, hash_ in (
            ("filter the matrix", "#/matrix?verdict=race&dtype=float32"),
            ("filter by text", "#/matrix?text=pairing_3"),
            ("list results", "#/results?backend=simulate%3A*&text=numeric"),
        ):
            before = processor()
            milliseconds = page.evaluate(
                """(hash) => new Promise((done) => {
                  const started = performance.now();
                  addEventListener("hashchange", () => requestAnimationFrame(() => requestAnimationFrame(
                    () => done(performance.now() - started))), { once: true });
                  location.hash = hash;
                })""",
                hash_,
            )
            times[name] = Times(milliseconds / 1000, processor() - before)
        browser.close()
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", type=int, default=[10_000, 100_000])
    slow = 0
    for cases in parser.parse_args().cases:
        with tempfile.TemporaryDirectory() as folder:
            run = synthesize(Path(folder, "run"), cases)
            started = time.perf_counter()
            page_file = write_html(Path(folder, "report.html"), read_all([run]))
            built = time.perf_counter() - started
            print(f"{cases} cases: {page_file.stat().st_size} bytes, built in {built:.1f} s", flush=True)
            if not shutil.which("chromium"):
                print("no chromium on PATH: not opened")
                continue
            for name, times in timed(page_file).items():
                print(f"  {name}: {times.elapsed:.2f} s, {times.processor:.2f} s of processor time")
                slow += times.processor > LIMIT
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
