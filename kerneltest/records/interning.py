"""Compact in-memory records: repeated field values are interned, evidence windows stay on disk."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from kerneltest.records.evidence import Evidence
from kerneltest.records.schema import Record

_MOST = 2**16  # interned values; if all values differ, interning costs more than it saves

_Value = TypeVar("_Value", bound=Hashable)
_Item = TypeVar("_Item")
_Kept = TypeVar("_Kept")


def intern_records(records: Iterable[Record]) -> Iterator[Record]:
    """Yields equal records in a fraction of the memory, but without the elements of their evidence windows.

    `runs.load_windows` reads those again.
    """
    shared = _Interner()
    return map(shared.record, records)


class _Interner:
    """Values seen so far, each stored once."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Hashable] = {}
        self._floats: dict[float, float] = {}  # separate, since 1.0 equals 1
        self._mappings: dict[Hashable, Mapping[str, Any]] = {}

    def record(self, record: Record) -> Record:
        same, mapping = self._same, self._mapping
        return replace(
            record,
            item=same(record.item),
            pairing=same(record.pairing),
            backend=same(record.backend),
            dtype=same(record.dtype),
            group=same(record.group),
            family=same(record.family),
            signature=same(record.signature),
            target=same(record.target),
            case=same(record.case),  # other backends record the same case soon after
            message=same(record.message),
            compared=same(record.compared),
            bound_fraction=None if record.bound_fraction is None else self._float(record.bound_fraction),
            tolerance=same(record.tolerance),
            evidence=record.evidence and _without_windows(record.evidence),
            compiler_metrics=record.compiler_metrics or _NO_FACTS,
            ulps=same(tuple(map(same, record.ulps))),
            dims=mapping(record.dims),
            dtypes=mapping(record.dtypes),
            statics=mapping(record.statics),
            special_inputs=same(record.special_inputs),
            magnitudes=same(record.magnitudes),
            detail=record.detail and self._same(record.detail),
            defined=same(record.defined),
            undefined=same(record.undefined),
            reused_from=same(record.reused_from),
        )

    def _same(self, value: _Value) -> _Value:
        return _once(self._values, value, value)

    def _float(self, value: float) -> float:
        return _once(self._floats, value, value)

    def _mapping(self, value: Mapping[str, _Item]) -> Mapping[str, _Item]:
        return _once(self._mappings, tuple((name, type(each), each) for name, each in value.items()), value)


def _once(known: dict[Any, Any], key: Hashable, value: _Kept) -> _Kept:
    """Returns the first value seen under a key."""
    if len(known) > _MOST:
        known.clear()
    first: _Kept = known.setdefault(key, value)
    return first


_NO_FACTS: Mapping[str, Mapping[str, int]] = {}


def _without_windows(evidence: Evidence) -> Evidence:
    if evidence.window is None:
        return evidence
    window = replace(evidence.window, values=(), expected=(), bound=(), wrong="")
    return replace(evidence, window=window, inputs=(), errors=None)
