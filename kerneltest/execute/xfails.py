"""The application of declared xfails: to planned cells, to single cases, and to all cases of a family."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.outcomes import Xfail
from kerneltest.execute.item import Item
from kerneltest.plan.explicit import AnyCase

Place = tuple[str, str, str, str]  # a cell: backend, dtype, group, family


def unmatched_xfails(declared: Iterable[Xfail], cells: Iterable[Place]) -> tuple[Xfail, ...]:
    """Returns the xfails whose backend is planned but which match no planned cell."""
    cells = list(cells)
    return tuple(
        xfail
        for xfail in declared
        if any(fnmatchcase(backend, xfail.backend) for backend, *_ in cells)
        and not any(xfail.covers(*cell, xfail.signature) for cell in cells)
    )


def quarantine_reason(item: Item, case: AnyCase) -> str:
    """Returns the reason not to run a case, if an xfail declares that it crashes or hangs; "" if none does."""
    for xfail in item.pairing.xfail:
        if xfail.verdict in (Verdict.CRASH, Verdict.HANG) and xfail.covers(*item.place(case), str(case.signature)):
            return f"Not run: an xfail declares {xfail.verdict}. {xfail.reason} ({xfail.url})"
    return ""


def apply_xfails(declared: Iterable[Xfail], verdict: Verdict, place: Place, signature: str) -> tuple[Verdict, str]:
    """Returns a case's verdict after xfails are applied, and a sentence to add to its message (or "")."""
    covering = [xfail for xfail in declared if xfail.covers(*place, signature)]
    if not (covering and verdict.is_finding):
        return verdict, ""
    for xfail in covering:
        if verdict == xfail.verdict:
            return Verdict.XFAIL, f"Declared: {xfail.reason} ({xfail.url})"
    expected = " or ".join(dict.fromkeys(xfail.verdict for xfail in covering))
    return verdict, f"An xfail declares {expected} here, but the verdict is {verdict}."


def obsolete_xfails(
    declared: Iterable[Xfail],
    verdicts: Mapping[str, Sequence[tuple[str, Verdict]]],
    backend: str,
    dtype: str,
    group: str,
) -> dict[str, str]:
    """Returns each family with strict xfails that are obsolete there, and the reason: all cases that they cover pass.

    One failing case is enough for it to hold, since a failure may depend on the values. An xfail that names a group of
    families holds if any of them shows the failure.
    `verdicts` are the signature and verdict of every case of the group, by family.
    """
    reasons: dict[str, list[str]] = {}
    for xfail in declared:
        if not xfail.strict:
            continue
        covered = {
            family: [v for signature, v in cases if xfail.covers(backend, dtype, group, family, signature)]
            for family, cases in verdicts.items()
        }
        covered = {family: found for family, found in covered.items() if found}
        if xfail.group and covered:
            covered = {next(iter(covered)): [verdict for found in covered.values() for verdict in found]}
        for family, found in covered.items():
            if set(found) == {Verdict.PASS}:
                passed = f"An xfail declares {xfail.verdict} here, but all {len(found)} cases pass"
                reason = f"{passed}: remove or narrow it. Declared: {xfail.reason} ({xfail.url})"
                reasons.setdefault(family, []).append(reason)
    return {family: "\n".join(lines) for family, lines in reasons.items()}
