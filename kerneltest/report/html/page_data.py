"""The JSON document that the page's scripts draw. Results are dictionary-encoded columns."""

import base64
import functools
import heapq
import json
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String

from kerneltest.core.dtypes import is_float, is_integer, parse_dtype
from kerneltest.core.grouping import group_pairs
from kerneltest.core.ids import ANY
from kerneltest.core.verdicts import Gap, Verdict
from kerneltest.records.evidence import ERROR_LEVELS, ERROR_LIMITS, OF_COUNTS, FillExtent, SpecialValue
from kerneltest.records.runs import Overlay, OverlayRow
from kerneltest.records.schema import Record
from kerneltest.records.sharpness import measure_sharpness
from kerneltest.report.html.finding_data import MOST_TEXT, Json, ShownSuspects, budget_data, finding_details
from kerneltest.report.matrix import Matrix
from kerneltest.report.panels import Section

# Highlights Python source as tokens, which the page shows by `textContent` only.

# Token types of Pygments and their CSS classes.
_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Number, "n"),
    (Name.Decorator, "d"),
    (Name.Function, "f"),
)


@functools.lru_cache(maxsize=256)  # pairings share kernels, and kernels share functions
def _highlight(text: str) -> list[list[list[str]]]:
    # Lines of tokens: pairs of a CSS class, "" for none, and text.
    lines: list[list[list[str]]] = [[]]
    for token, value in lex(text, PythonLexer(stripnl=False)):
        name = next((name for parent, name in _CLASSES if token in parent), "")
        for number, piece in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if not piece:
                continue
            if lines[-1] and lines[-1][-1][0] == name:
                lines[-1][-1][1] += piece
            else:
                lines[-1].append([name, piece])
    while lines and not lines[-1]:
        lines.pop()
    return lines


_MOST_MESSAGES = 4000  # distinct messages; further ones are only in the records, and the page says so
_COMPILER_FACTS = ("registers", "shared memory", "stack", "spills", "matrix instructions", "float64 instructions")
_BLOCK_FACTS = ("TMEM columns", "barriers", "cluster x", "cluster y", "cluster z")  # of Mosaic GPU kernels
_COLUMNS = ("pairing", "backend", "dtype", "family", "signature", "target", "verdict", "text", "suspect")


def _numbers(*first: str) -> defaultdict[str, int]:
    # The number of each word, by the order in which they are first looked up.
    numbers: defaultdict[str, int] = defaultdict(lambda: len(numbers))
    for word in first:
        numbers[word]
    return numbers


def compress_json(value: object) -> str:
    """Returns a value as JSON, deflated and base64-encoded."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(piece.encode()) for piece in _json_pieces(value))
    return base64.b64encode(packed + packer.flush()).decode()


def _json_pieces(value: object) -> Iterator[str]:
    # So that only one column at a time exists as text.
    if isinstance(value, dict):
        for number, (name, each) in enumerate(value.items()):
            yield f"{',' if number else '{'}{json.dumps(name)}:"
            yield from _json_pieces(each)
        yield "}" if value else "{}"
    else:
        yield json.dumps(value, separators=(",", ":"), allow_nan=False, default=list)  # a column is an array


def page_data(merged: Overlay, matrix: Matrix, suspects: ShownSuspects, sections: Sequence[Section] = ()) -> Json:
    """Returns the document; of the sections, it has the notes on sources."""
    pairings = _numbers(*(row.pairing for row in matrix.rows))
    backends = _numbers(*(column.title for column in matrix.columns))
    dtypes, families, signatures = _numbers(), _numbers(), _numbers(ANY)
    targets, messages = _numbers(""), _numbers("")
    endings = (*Verdict, *Gap)
    verdicts = _numbers(*endings)
    groups: dict[str, str] = {}
    by_place = group_pairs(((pairings[r.record.pairing], backends[r.record.backend]), r) for r in merged.rows)
    rows = [row for place in sorted(by_place) for row in by_place.pop(place)]
    columns = {name: array("i") for name in _COLUMNS}
    used: list[float] = []
    by_pairing: dict[str, list[Record]] = {name: [] for name in pairings}
    for row in rows:
        record = row.record
        by_pairing[record.pairing].append(record)
        groups.setdefault(record.family, record.group)
        message = record.message[:MOST_TEXT]
        shown = message in messages or len(messages) < _MOST_MESSAGES
        values = (
            pairings[record.pairing],
            backends[record.backend],
            dtypes[record.dtype],
            families[record.family],
            signatures[record.signature],
            targets[record.target],
            verdicts[row.ending],
            messages[message] if shown else -1,
            suspects.number_of.get(id(record), -1),
        )
        for name, value in zip(_COLUMNS, values, strict=True):
            columns[name].append(value)
        used.append(_round_fraction(record.bound_fraction))
    names = {"pairing": pairings, "backend": backends, "family": families}
    known = {fact for row in rows for of_kernel in row.record.compiler_metrics.values() for fact in of_kernel}
    facts = (*_COMPILER_FACTS, *(fact for fact in _BLOCK_FACTS if fact in known))
    return {
        "verdicts": [
            {"name": e, "letter": e.letter, "kind": e.kind, "meaning": e.meaning, "finding": not e.is_green}
            for e in endings
        ],
        "pairings": [
            {"id": name, **_pairing(name, merged, by_pairing[name], first, facts)}
            for name, first in zip(pairings, accumulate(map(len, by_pairing.values()), initial=0), strict=False)
        ],
        "specials": _COVERED_VALUES,
        "backends": [{"id": column.title, "tier": column.tier} for column in matrix.columns],
        "dtypes": list(dtypes),
        "families": [{"id": name, "group": groups[name]} for name in families],
        "signatures": list(signatures),
        "targets": list(targets),
        "texts": list(messages),
        "rows": {**columns, "used": used},
        "suspects": list(suspects.data([row.record for row in rows], names)),
        "findings": finding_details(merged, rows),
        "runs": [
            {"name": run.name, "started": run.plan.started, "environment": dict(run.plan.environment)}
            for run in merged.runs
        ],
        "ulps": _ulps(rows),
        "budgets": [
            [pairings[record.pairing], backends[record.backend], families[record.family], used, budget_data(record)]
            for record, used in _closest_to_bound(rows)
        ],
        "sharpness": [
            [pairings[each.pairing], backends[each.backend], dtypes[each.dtype], each.cases, each.formulas]
            + [_round_fraction(error) for error in (each.best, each.typical, each.coarse)]
            for each in measure_sharpness(row.record for row in rows)
        ],
        "facts": facts,
        "notes": group_pairs(
            (note.pairing, [note.place, note.text[:MOST_TEXT], note.good])
            for section in sections
            for note in section.notes
        ),
        "errorLimits": ERROR_LIMITS,
        "errorLevels": ERROR_LEVELS,
    }


def _round_fraction(used: float | None) -> float | int:
    return -1 if used is None else _intern_number(f"{min(used, 1e99):.2g}")


@functools.lru_cache(4096)
def _intern_number(text: str) -> float:
    # Cases that show the same number share an object.
    return float(text)


def _pairing(name: str, merged: Overlay, records: Sequence[Record], first: int, facts: Sequence[str]) -> Json:
    # The declaration is the last run's. The records are the page's rows from `first` on.
    pairing: dict[str, object] = {}
    for run in reversed(merged.runs):
        declared = run.plan.pairings.get(name)
        if declared is not None:
            pairing["declaration"] = dict(declared.declaration)
            for part, source in (("kernel", declared.kernel), ("oracle", declared.oracle)):
                pairing[part] = {
                    "file": source.file,
                    "parts": [(first, _highlight(text)) for first, text in sorted(source.parts)],
                }
            break
    pairing["lengths"] = _length_coverage(records)
    pairing["specials"] = _special_coverage(records)
    timed = [(record.seconds, first + i) for i, record in enumerate(records) if record.case and not record.reused_from]
    slowest = heapq.nlargest(_MOST_SLOW, timed)
    pairing["slowest"] = [(row, float(f"{seconds:.3g}")) for seconds, row in slowest if seconds > 0]
    pairing["compiled"] = _compiled(records, facts)
    advice = group_pairs(((record.backend, line), record.signature) for record in records for line in record.advice)
    pairing["advice"] = [[backend, line, signatures] for (backend, line), signatures in sorted(advice.items())]
    pairing["artifacts"] = [
        [record.backend, record.signature, files]
        for record in records
        if (files := [file for file in record.files if file.startswith("artifacts/")])  # the only links
    ]
    pairing["xfails"] = sorted({text for run in merged.runs for text in run.plan.xfail.get(name, ())})
    return pairing


def _compiled(records: Sequence[Record], facts: Sequence[str]) -> list[list[object]]:
    # Backend, kernel, number of compiled signatures, and the largest value of each of some compiler metrics.
    compiled = group_pairs(
        ((record.backend, kernel), of_signature)
        for record in records
        for kernel, of_signature in record.compiler_metrics.items()
    )
    return [
        [*place, len(each), [max(of_signature.get(fact, 0) for of_signature in each) for fact in facts]]
        for place, each in sorted(compiled.items())
    ]


def _closest_to_bound(rows: Sequence[OverlayRow]) -> Iterator[tuple[Record, float | int]]:
    # The case of each pairing on each backend, with its error / bound. Passing cases are preferred to findings.
    most: dict[tuple[str, str], tuple[bool, float, Record]] = {}
    for row in rows:
        record = row.record
        if record.error_budget and record.bound_fraction is not None:
            place = record.pairing, record.backend
            rank = not row.needs_attention, record.bound_fraction
            if place not in most or rank > most[place][:2]:
                most[place] = *rank, record
    yield from ((record, _round_fraction(used)) for _, used, record in most.values())


def _ulps(rows: Sequence[OverlayRow]) -> list[list[object]]:
    sums: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        record = row.record
        if record.ulps:
            counts = sums.setdefault((record.pairing, record.backend, record.dtype), [])
            counts.extend([0] * (len(record.ulps) - len(counts)))
            for bucket, count in enumerate(record.ulps):
                counts[bucket] += count
    return [[*place, counts] for place, counts in sums.items()]


# The lengths and the special values that the cases of a pairing cover, and the slowest cases.

_MOST_SLOW = 10  # cases of a pairing
_MOST_LENGTHS = 40  # of a dim
_MOST_ARGUMENTS = 16
_EXTENTS = (FillExtent.SOME, FillExtent.ROW, FillExtent.ALL)
_COVERED_VALUES = [value for value in SpecialValue if value not in OF_COUNTS]
_OF_NUMBERS = (SpecialValue.ZERO, SpecialValue.NEGATIVE, SpecialValue.REPEATED)


def _length_coverage(records: Sequence[Record]) -> list[list[object]]:
    # Dim, lengths with their numbers of failing and of all cases, and the number of further lengths.
    tried: defaultdict[str, Counter[int]] = defaultdict(Counter)
    failing: Counter[tuple[str, int]] = Counter()
    for record in records:
        if record.case and record.verdict.is_judgement:
            for dim, length in record.dims.items():
                tried[dim][length] += 1
                failing[dim, length] += record.verdict.is_finding
    return [
        [
            dim,
            [[length, failing[dim, length], counts[length]] for length in sorted(counts)[:_MOST_LENGTHS]],
            max(0, len(counts) - _MOST_LENGTHS),
        ]
        for dim, counts in tried.items()
    ]


def _special_coverage(records: Sequence[Record]) -> list[list[object]]:
    # Each argument with its cases by special value: in some elements, in a row, and in all elements; None for a value
    # that no dtype of the argument has.
    dtypes: dict[str, set[str]] = {}
    counts: Counter[tuple[str, SpecialValue, FillExtent]] = Counter()
    for record in records:
        if record.case and record.tier.gives_values and record.verdict.is_judgement:
            for path, dtype in record.dtypes.items():
                dtypes.setdefault(path, set()).add(dtype)
            counts.update((special.argument, special.value, special.part) for special in record.special_inputs)
    return [
        [
            path,
            [
                [counts[path, value, part] for part in _EXTENTS] if any(_has(each, value) for each in found) else None
                for value in _COVERED_VALUES
            ],
        ]
        for path, found in list(dtypes.items())[:_MOST_ARGUMENTS]
    ]


def _has(name: str, value: SpecialValue) -> bool:
    # True for a dtype of another kerneltest.
    try:
        dtype = parse_dtype(name)
    except (TypeError, ValueError):
        return True
    if dtype.kind == "b":
        return value is SpecialValue.FALSE
    if is_float(dtype):
        return value is not SpecialValue.FALSE
    return is_integer(dtype) and value in _OF_NUMBERS
