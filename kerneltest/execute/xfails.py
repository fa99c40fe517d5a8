"""Declared xfails against what happened: which verdicts they explain, and which of them no longer hold."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.xfail import Xfail


def unmatched(declared: Iterable[Xfail], cells: Iterable[tuple[str, str, str]]) -> tuple[Xfail, ...]:
    """Those whose backend is planned and that match none of the planned cells (backend, dtype, family)."""
    cells = list(cells)
    return tuple(
        xfail
        for xfail in declared
        if any(fnmatchcase(backend, xfail.backend) for backend, _, _ in cells)
        and not any(xfail.covers(*cell, "*" if xfail.signature == "*" else xfail.signature) for cell in cells)
    )


def quarantined(declared: Iterable[Xfail], backend: str, dtype: str, family: str, signature: str) -> str:
    """Why a case is never launched: an xfail declares that it takes the process along; or ""."""
    for xfail in declared:
        if xfail.verdict in (Verdict.CRASH, Verdict.HANG) and xfail.covers(backend, dtype, family, signature):
            return f"Not launched: an xfail declares {xfail.verdict}. {xfail.reason} ({xfail.url})"
    return ""


def settle(
    declared: Iterable[Xfail], verdict: Verdict, backend: str, dtype: str, family: str, signature: str
) -> tuple[Verdict, str]:
    """A case's verdict in the light of what was declared, and a sentence to add to its message (or "")."""
    for xfail in declared:
        if xfail.covers(backend, dtype, family, signature) and verdict.is_finding:
            if verdict == xfail.verdict:
                return Verdict.XFAIL, f"Declared: {xfail.reason} ({xfail.url})"
            return verdict, f"An xfail declares {xfail.verdict} here; this is another verdict."
    return verdict, ""


def outlived(
    declared: Iterable[Xfail], cases: Iterable[tuple[str, Verdict]], backend: str, dtype: str, family: str
) -> str:
    """Why an xfail no longer holds for a cell, all of whose cases (signature, verdict) are given, or "".

    It must occur at least once among the cases it covers; it need not in every one, since what triggers it may
    depend on the values.
    """
    cases = list(cases)
    for xfail in declared:
        covered = [v for signature, v in cases if xfail.covers(backend, dtype, family, signature)]
        if covered and set(covered) == {Verdict.PASS}:
            return (
                f"An xfail declares {xfail.verdict} here, but all {len(covered)} cases pass: remove or narrow it. "
                f"Declared: {xfail.reason} ({xfail.url})"
            )
    return ""
