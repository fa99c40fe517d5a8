"""Declared limitations: a verdict that is expected, where, why, and who says so. Strict both ways."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from kerneltest.verdicts import DECLARABLE, NO_FINDING


@dataclass(frozen=True, slots=True)
class Limitation:
    """An expected finding.

    Attributes:
      verdict: the one verdict that is expected; any other finding fails, and so does a cell without it.
      backend, dtype, family: shell-style patterns of what the limitation covers.
      signature: a shell-style pattern of the signature's text, such as `*precision=highest*`.
      reason: why, in words.
      url: where this is documented or tracked.
    """

    verdict: str
    reason: str
    url: str
    backend: str = "*"
    dtype: str = "*"
    family: str = "*"
    signature: str = "*"

    def covers(self, backend: str, dtype: str, family: str, signature: str) -> bool:
        """Whether a case is one that it speaks of."""
        return (
            fnmatchcase(backend, self.backend)
            and fnmatchcase(dtype, self.dtype)
            and fnmatchcase(family, self.family)
            and fnmatchcase(signature, self.signature)
        )


def idle(limitations: Iterable[Limitation], cells: Iterable[tuple[str, str, str]]) -> tuple[Limitation, ...]:
    """Those whose backend is planned and that still match none of the planned cells (backend, dtype, family)."""
    cells = list(cells)
    return tuple(
        declared
        for declared in limitations
        if any(fnmatchcase(backend, declared.backend) for backend, _, _ in cells)
        and not any(declared.covers(*cell, "*" if declared.signature == "*" else declared.signature) for cell in cells)
    )


def limitation(
    *,
    verdict: str,
    reason: str,
    url: str,
    backend: str = "*",
    dtype: str = "*",
    family: str = "*",
    signature: str = "*",
) -> Limitation:
    """Declares that `verdict` is expected where the patterns match; see `Limitation`.

    Raises:
      ValueError: the verdict cannot be expected, or the reason or the URL is missing.
    """
    if verdict not in DECLARABLE:
        raise ValueError(f"limitation: {verdict!r} cannot be expected; choose one of {', '.join(DECLARABLE)}")
    if not reason.strip():
        raise ValueError("limitation: say the reason, for whoever reads the report")
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"limitation: url must link to where this is documented or tracked, not {url!r}")
    return Limitation(verdict, reason, url, backend, dtype, family, signature)


def quarantined(limitations: Iterable[Limitation], backend: str, dtype: str, family: str, signature: str) -> str:
    """Why a case is never launched: a limitation declares that it takes the process along; or ""."""
    for declared in limitations:
        if declared.verdict in ("crash", "hang") and declared.covers(backend, dtype, family, signature):
            return f"Not launched: declared to end in {declared.verdict}. {declared.reason} ({declared.url})"
    return ""


def settle(
    limitations: Iterable[Limitation], verdict: str, backend: str, dtype: str, family: str, signature: str
) -> tuple[str, str]:
    """A case's verdict in the light of what was declared, and a sentence to add to its message (or "")."""
    for declared in limitations:
        if declared.covers(backend, dtype, family, signature) and verdict not in NO_FINDING:
            if verdict == declared.verdict:
                return "expected", f"Declared limitation: {declared.reason} ({declared.url})"
            return verdict, f"A limitation declares {declared.verdict} here, which this is not."
    return verdict, ""


def outlived(
    limitations: Iterable[Limitation], cases: Iterable[tuple[str, str]], backend: str, dtype: str, family: str
) -> str:
    """Why a limitation no longer holds for a cell, all of whose cases (signature, verdict) are given, or "".

    It must occur at least once among the cases it covers; it need not in every one, since what triggers it may
    depend on the values.
    """
    cases = list(cases)
    for declared in limitations:
        covered = [v for signature, v in cases if declared.covers(backend, dtype, family, signature)]
        if covered and set(covered) == {"pass"}:
            return (
                f"A limitation declares {declared.verdict} here, but all {len(covered)} cases pass: remove or narrow "
                f"it. Declared: {declared.reason} ({declared.url})"
            )
    return ""
