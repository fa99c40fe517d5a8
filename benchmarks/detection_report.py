"""results.json of benchmarks/detection.py as a page."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

# Why kerneltest does not find a variant, told where it was measured not to.
WHY = {
    "iota.blocked: positions are computed in bfloat16, so wrong from 257 on": "only depth standard plans a length past "
    "four blocks of 64",
}
CHECKERS = {
    "tutorial": "tutorial check",
    "hypothesis": "Hypothesis, 100 examples",
    "quick, interpret": "kerneltest quick, `interpret` alone",
    "quick, both": "kerneltest quick, `interpret` and `simulate:sm_90`",
    "standard, interpret": "kerneltest standard, `interpret` alone",
    "standard, both": "kerneltest standard, `interpret` and `simulate:sm_90`",
}
SECTIONS = ("detection", "alarms", "by_hand", "constants")


def markdown(results: Mapping[str, Any]) -> str:
    """The page, of those sections that were measured."""
    makers = {"detection": _detection, "alarms": _alarms, "by_hand": _by_hand, "constants": _constants}
    parts = [
        "# What is found, and what is wrongly accused\n\n"
        "Written by `python benchmarks/detection.py`; every number here was measured by it."
    ]
    for name in SECTIONS:
        if name in results:
            parts.append(makers[name](results[name]) + "\n\n" + _measured(results[name]))
    return "\n\n".join(parts) + "\n"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measured(section: Mapping[str, Any]) -> str:
    facts = ", ".join(f"{key} {value}" for key, value in section["environment"].items())
    return f"Measured in {section['took']:.0f} s: {facts}."


def _detection(section: Mapping[str, Any]) -> str:
    rows = section["variants"]
    total = len(rows)
    families = dict.fromkeys(row["family"] for row in rows)
    summary = []
    for key, title in CHECKERS.items():
        found = [row["found"][key]["seconds"] for row in rows if row["found"][key]["finding"]]
        missed = [row["found"][key]["seconds"] for row in rows if not row["found"][key]["finding"]]
        by_family = [
            sum(1 for row in rows if row["family"] == name and row["found"][key]["finding"]) for name in families
        ]
        summary.append([title, f"**{len(found)}** of {total}", *by_family, _median(found), _median(missed)])
    sizes = [f"{name} ({sum(1 for row in rows if row['family'] == name)})" for name in families]
    head = ["checker", "found", *sizes, "median s to the finding", "median s where none"]
    last = [row["found"]["standard, both"]["finding"] for row in rows]
    verdicts = Counter(words.partition(":")[0] for words in last if words)
    lost = [row for row in rows if not row["found"]["standard, both"]["finding"]]
    words = [f"- {row['name']}: {WHY.get(row['name'], 'not explained')}." for row in lost]
    by_hand = [row for row in lost if row["found"]["tutorial"]["finding"] or row["found"]["hypothesis"]["finding"]]
    return "\n\n".join(
        [
            f"## Detection: {total} kernels, each broken by a small edit",
            "Variants: the edited kernels of `tests/corpus/`, written by the project itself; none was left "
            "out for not being found. The tutorial check is `assert_allclose` on "
            "normal float32 values of two whole blocks, every static option once; the Hypothesis test draws lengths "
            "from 1 to 200, static options and float32 values (normal, or one by one from -10 to 10). Both run on "
            "interpret mode, with rtol and atol 1e-2 for matrix products and 1e-5 for the rest. Seconds are those to "
            "the first finding, compilation included, with no cache on disk. Checks by hand see float32 and ordinary "
            "values alone, as such tests usually do: what shows only elsewhere is beyond them by construction.",
            _table(head, summary),
            "What the first finding at standard is called: "
            + ", ".join(f"`{verdict}` {count}" for verdict, count in verdicts.most_common())
            + ".",
            f"Not found by kerneltest at standard: {len(lost)}"
            + (f", of which a check by hand finds {len(by_hand)}." if lost else "."),
            *(["\n".join(words)] if words else []),
            "Seconds to the first finding; a dash where there is none:",
            _table(
                ["variant", *CHECKERS],
                [[row["name"], *(_seconds(row["found"][key]) for key in CHECKERS)] for row in rows],
            ),
        ]
    )


def _median(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f}" if seconds else "–"


def _seconds(found: Mapping[str, Any]) -> str:
    return f"{found['seconds']:.2f}" if found["finding"] else "–"


def _alarms(section: Mapping[str, Any]) -> str:
    rows, findings = section["rows"], section["findings"]
    table = []
    for row in sorted(rows, key=lambda r: r["cell"]):
        backend, group = row["cell"].split()
        accused = sum(1 for finding in findings if finding["cell"] == row["cell"])
        table.append([f"`{backend}`", group, row["cases"], accused, f"{row['seconds']:.0f}"])
    cases, seconds = sum(r["cases"] for r in rows), sum(r["seconds"] for r in rows)
    table.append(["all", "", f"**{cases}**", f"**{len(findings)}**", f"{seconds:.0f}"])
    listed = "\n".join(f"- {f['pairing']}, {f['cell']}, seed {f['seed']}, case {f['case']}: {f['finding']}"
                       for f in findings[:20])  # fmt: skip
    return "\n\n".join(
        [
            f"## False alarms: right kernels, {cases} cases, {len(findings)} findings",
            f"Every pairing of `suites/` that these backends run (all but the Hopper pipeline) at depth quick with "
            f"{section['seeds']} seeds. They hold {section['distinct']} distinct inputs: backends share them, and "
            "some families hold the same values with every seed.",
            _table(["backend", "group", "cases", "findings", "seconds"], table),
            *([listed] if listed else []),
        ]
    )


def _by_hand(section: Mapping[str, Any]) -> str:
    rows = section["right"]
    head = ["right kernel", *(CHECKERS[key] for key in ("tutorial", "hypothesis"))]
    said = [[name, *(each[key]["finding"] or "–" for key in ("tutorial", "hypothesis"))] for name, each in rows.items()]
    return "\n\n".join(
        [
            f"## What the checks by hand say of {len(rows)} right kernels",
            "A dash where they say nothing. Where a check accuses the right kernel, its findings above prove "
            "nothing about the broken ones.",
            _table(head, said),
        ]
    )


def _constants(section: Mapping[str, Any]) -> str:
    rows, variants = section["right"], section["variants"]
    accused = {key: sum(1 for row in rows if row[key]["findings"]) for key in ("0.1", "1")}
    seen = [v for v in variants if v["1"]["findings"]]
    lost = [v for v in seen if not v["100"]["findings"]]
    backends = sorted(
        {name for r in rows + variants for key in ("0.1", "1", "100") for name in r.get(key, {}).get("findings", {})}
    )

    def by_backend(row: Mapping[str, Any]) -> list[int]:
        return [row["findings"].get(name, 0) for name in backends]

    table = [
        [
            r["pairing"],
            r["model"],
            r["1"]["cases"],
            *by_backend(r["0.1"]),
            sum(by_backend(r["1"])),
            f"{r['1']['used']:.2f}",
        ]
        for r in rows
    ]
    verdicts = [[v["name"], v["1"]["cases"], *by_backend(v["1"]), *by_backend(v["100"])] for v in variants]
    at = {factor: [f"at {factor}, `{name}`" for name in backends] for factor in ("0.1", "1", "100")}
    return "\n\n".join(
        [
            "## The constants of the error models",
            "Numeric families alone, depth quick, seed 0, on `interpret` and `simulate:sm_90`, every bound multiplied "
            "by a factor (half an ULP of the output is added unscaled). "
            "Numbers in the tables are findings.",
            f"Right kernels with findings: {accused['0.1']} of {len(rows)} at 0.1, {accused['1']} of {len(rows)} at 1.",
            _table(
                ["right kernel", "error model", "cases", *at["0.1"], "at 1", "largest error / bound, float32"], table
            ),
            f"Variants of little precision: {len(seen)} of {len(variants)} are found by numeric families at 1; at 100, "
            f"these lose {len(lost)}. Those still found are off by so many digits that a hundredfold bound sees them.",
            _table(["variant", "cases", *at["1"], *at["100"]], verdicts),
        ]
    )
