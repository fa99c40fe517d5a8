"""The application of declared xfails: to planned cells, to single cases, and to all cases of a family."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.xfail import Xfail


def unmatched_xfails(declared: Iterable[Xfail], cells: Iterable[tuple[str, str, str]]) -> tuple[Xfail, ...]:
    """Returns the xfails whose backend is planned but which match no planned cell (backend, dtype, family)."""
    cells = list(cells)
    return tuple(
        xfail
        for xfail in declared
        if any(fnmatchcase(backend, xfail.backend) for backend, _, _ in cells)
        and not any(xfail.covers(*cell, "*" if xfail.signature == "*" else xfail.signature) for cell in cells)
    )


def quarantine_reason(declared: Iterable[Xfail], backend: str, dtype: str, family: str, signature: str) -> str:
    """Returns the reason not to run a case, if an xfail declares that it crashes or hangs; "" if none does."""
    for xfail in declared:
        if xfail.verdict in (Verdict.CRASH, Verdict.HANG) and xfail.covers(backend, dtype, family, signature):
            return f"Not run: an xfail declares {xfail.verdict}. {xfail.reason} ({xfail.url})"
    return ""


def apply_xfails(
    declared: Iterable[Xfail], verdict: Verdict, backend: str, dtype: str, family: str, signature: str
) -> tuple[Verdict, str]:
    """Returns a case's verdict after xfails are applied, and a sentence to add to its message (or "")."""
    for xfail in declared:
        if xfail.covers(backend, dtype, family, signature) and verdict.is_finding:
            if verdict == xfail.verdict:
                return Verdict.XFAIL, f"Declared: {xfail.reason} ({xfail.url})"
            return verdict, f"An xfail declares {xfail.verdict} here, but the verdict is {verdict}."
    return verdict, ""


def obsolete_xfail(
    declared: Iterable[Xfail], cases: Iterable[tuple[str, Verdict]], backend: str, dtype: str, family: str
) -> str:
    """Returns the reason why an xfail is obsolete for a cell: all cases that it covers pass. Returns "" if none is.

    One failing case is enough for it to hold, since a failure may depend on the values.

    Args:
      declared: the xfails.
      cases: the signature and verdict of every case of the cell.
      backend, dtype, family: the cell.
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
