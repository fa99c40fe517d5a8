"""Declared xfails: a verdict that is expected, where, why, and who says so."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from kerneltest.core.verdicts import Verdict

DECLARABLE = tuple(verdict for verdict in Verdict if verdict.is_finding and verdict is not Verdict.XPASS)


@dataclass(frozen=True, slots=True)
class Xfail:
    """An expected finding. It is strict: any other finding fails, and so does a cell in which it never occurs.

    Attributes:
      verdict: the one verdict that is expected.
      reason: why, in words.
      url: where this is documented or tracked.
      backend, dtype, family: shell-style patterns of what it covers.
      signature: a shell-style pattern of the signature's text, such as `*precision=highest*`.
    """

    verdict: Verdict
    reason: str
    url: str
    backend: str = "*"
    dtype: str = "*"
    family: str = "*"
    signature: str = "*"

    def __str__(self) -> str:
        return f"{self.verdict} on {self.backend}, {self.dtype}, {self.family}"

    def covers(self, backend: str, dtype: str, family: str, signature: str) -> bool:
        """Whether it speaks of a case."""
        return (
            fnmatchcase(backend, self.backend)
            and fnmatchcase(dtype, self.dtype)
            and fnmatchcase(family, self.family)
            and fnmatchcase(signature, self.signature)
        )


def xfail(
    verdict: str,
    *,
    reason: str,
    url: str,
    backend: str = "*",
    dtype: str = "*",
    family: str = "*",
    signature: str = "*",
) -> Xfail:
    """Declares that a finding is expected.

        xfail=[kt.xfail("unimplemented", backend="rocm", dtype="float64", reason="...", url="https://...")]

    Args:
      verdict: the one verdict that is expected, such as `"mismatch"`.
      reason: why, for whoever reads the report.
      url: where this is documented or tracked.
      backend, dtype, family: shell-style patterns of what it covers; by default everything.
      signature: a shell-style pattern of the signature's text, such as `"*precision=highest*"`.

    Raises:
      ValueError: the verdict cannot be expected, or the reason or the URL is missing.
    """
    if verdict not in DECLARABLE:
        raise ValueError(f"xfail: {verdict!r} cannot be expected; choose one of {', '.join(DECLARABLE)}")
    if not reason.strip():
        raise ValueError("xfail: give the reason, for whoever reads the report")
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"xfail: url must link to where this is documented or tracked, not {url!r}")
    return Xfail(Verdict(verdict), reason, url, backend, dtype, family, signature)
