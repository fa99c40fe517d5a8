"""Declared xfails: the verdict that is expected, the cases it is expected in, the reason and a link."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from kerneltest.core.verdicts import Verdict
from kerneltest.declare.problems import hide_frames

DECLARABLE = tuple(verdict for verdict in Verdict if verdict.is_finding and verdict is not Verdict.XPASS)


@dataclass(frozen=True, slots=True)
class Xfail:
    """An expected finding. Any other finding fails; so does a cell in which a strict one never occurs.

    Attributes:
      verdict: the expected verdict.
      reason: why it is expected.
      url: a page that documents or tracks it.
      backend, dtype, group, family: shell-style patterns of the cases it covers.
      signature: a shell-style pattern of the signature's text, such as `*precision=highest*`.
      strict: whether it must occur.
    """

    verdict: Verdict
    reason: str
    url: str
    backend: str = "*"
    dtype: str = "*"
    group: str = ""
    family: str = "*"
    signature: str = "*"
    strict: bool = True

    def __str__(self) -> str:
        backend = "every backend" if self.backend == "*" else self.backend
        narrowed = [each for each in (self.dtype, self.family, self.signature) if each != "*"]
        return f"{self.verdict} on {', '.join([backend, *filter(None, [self.group]), *narrowed])}"

    def covers(self, backend: str, dtype: str, group: str, family: str, signature: str) -> bool:
        """Returns whether it covers a case."""
        return (
            fnmatchcase(backend, self.backend)
            and fnmatchcase(dtype, self.dtype)
            and fnmatchcase(group, self.group or "*")
            and fnmatchcase(family, self.family)
            and fnmatchcase(signature, self.signature)
        )


@hide_frames
def xfail(
    verdict: str,
    *,
    reason: str,
    url: str,
    backend: str = "*",
    dtype: str = "*",
    group: str = "",
    family: str = "*",
    signature: str = "*",
    strict: bool = True,
) -> Xfail:
    """Declares that a finding is expected.

        xfail=[kt.xfail("unimplemented", backend="rocm", dtype="float64", reason="...", url="https://...")]

    Args:
      verdict: the expected verdict, such as `"mismatch"`.
      reason: why it is expected, for readers of the report.
      url: a page that documents or tracks it.
      backend, dtype, family: shell-style patterns of the cases it covers; by default all.
      group: a pattern of groups of families, such as `"special"` or `"*"`. At least one family of each group must
        show it; without `group`, each family must.
      signature: a shell-style pattern of the signature's text, such as `"*precision=highest*"`.
      strict: fail where it never occurs; False for a failure that depends on the random values of a seed.

    Raises:
      ValueError: the verdict cannot be expected, the reason is empty, or the URL is not one.
    """
    if verdict not in DECLARABLE:
        raise ValueError(f"xfail: {verdict!r} cannot be expected; choose one of {', '.join(DECLARABLE)}")
    if not reason.strip():
        raise ValueError("xfail: give the reason, for readers of the report")
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"xfail: url must link to a page that documents or tracks it, not {url!r}")
    return Xfail(Verdict(verdict), reason, url, backend, dtype, group, family, signature, strict)
