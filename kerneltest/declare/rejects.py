"""Declared rejections: calls that a kernel must refuse."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneltest.core.failures import exception_text, iter_causes
from kerneltest.declare.problems import hide_frames

Replacement = Any  # a static value, or an `ArrayArgument`


@dataclass(frozen=True, eq=False, slots=True)
class Rejection:
    """A call that must raise.

    Attributes:
      name: of the mistake in the call.
      arguments: replacements for arguments, by name: a value for a static argument, an `ArrayArgument` of another shape
        or dtype for an array.
      dims: lengths by dim, which the dim need not admit.
      raises: the type of the exception.
      match: a regular expression to be found in its message.
    """

    name: str
    arguments: Mapping[str, Replacement]
    dims: Mapping[str, int]
    raises: type[Exception]
    match: str

    @property
    def expected(self) -> str:
        """A description of the expected exception."""
        return f"{self.raises.__name__} matching {self.match!r}"

    def matches(self, error: BaseException) -> bool:
        """Returns whether an exception, or one that it was raised from, is the expected one."""
        return any(isinstance(e, self.raises) and re.search(self.match, exception_text(e)) for e in iter_causes(error))


@hide_frames
def rejects(
    name: str,
    /,
    *,
    raises: type[Exception],
    match: str,
    dims: Mapping[str, int] | None = None,
    arguments: Mapping[str, Replacement] | None = None,
    **changed: Replacement,
) -> Rejection:
    """Declares a call that the kernel must refuse, on every backend, before it runs.

        rejects=[kt.rejects("negative_scale", scale=-1.0, raises=ValueError, match="scale must be positive")]

    Args:
      name: names it in reports, as the family `rejects_NAME`.
      raises: the type of the exception, whether the kernel, Pallas or the backend's compiler raises it.
      match: a regular expression to be found in its message.
      dims: lengths in elements, by dim, which the dim need not admit. The other lengths are those of the pairing's
        first signature.
      arguments: replacements by name, for parameters whose names are options here, as in `{"match": 3}`.
      changed: replacements by name: a value for a static argument, and `kt.array(...)` with another shape or dtype for
        an array.

    Raises:
      ValueError: the name is not an identifier, `raises` is not an exception type, `match` is empty or malformed, or an
        argument is given twice.
    """
    if not name.isidentifier():
        raise ValueError(f"rejects: the name {name!r} must be an identifier, such as 'negative_scale'")
    if not (isinstance(raises, type) and issubclass(raises, Exception)):
        raise ValueError(f"rejects {name}: raises is the type of an exception, such as ValueError, not {raises!r}")
    if not match:
        raise ValueError(f"rejects {name}: give a match for the message, or any {raises.__name__} would count")
    try:
        re.compile(match)
    except re.error as error:
        raise ValueError(f"rejects {name}: match is not a regular expression: {error}") from error
    every = {**changed, **(arguments or {})}
    if len(every) < len(changed) + len(arguments or {}):
        raise ValueError(f"rejects {name}: {', '.join(changed.keys() & (arguments or {}).keys())} is given twice")
    return Rejection(name, every, dict(dims or {}), raises, match)
