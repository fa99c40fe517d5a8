"""Errors of JAX's lowering rules and of compilers, explained to the author of a kernel."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from kerneltest.core.details import NotBuilt, ResourceExceeded, Stage
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.source_location import relative_path
from kerneltest.core.targets import KIB, MIB
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.source_lines import equations_being_lowered, line_of_nested
from kerneltest.trace.tracing import Call

# Replacements for primitives that have no lowering.

_HINTS: dict[str, str] = {
    "is_finite": "jnp.abs(x) < jnp.inf, which is false for NaN too",
    "sort": "a sort outside the kernel, or a bitonic network of jnp.minimum and jnp.maximum",
    "top_k": "jnp.max and jnp.argmax in a loop, each time masking the element found",
    "erf_inv": "jax.scipy.special.erfinv outside the kernel",
    "cumprod": "jnp.exp(jnp.cumsum(jnp.log(x))) for positive x, or a loop over blocks",
    "cummax": "jax.lax.associative_scan(jnp.maximum, x)",
    "cummin": "jax.lax.associative_scan(jnp.minimum, x)",
    "dynamic_slice": "an index into the reference: ref[pl.ds(start, size)]",
    "dynamic_update_slice": "a store to the reference: ref[pl.ds(start, size)] = x",
    "gather": "an index into the reference: ref[indices]",
    "scatter": "a store to the reference: ref[indices] = x",
    "scatter-add": "plgpu.atomic_add(ref, indices, x)",
    "concatenate": "two stores to the output, or jnp.where on an iota",
    "pad": "a masked load: plgpu.load(ref.at[...], mask=..., other=...)",
    "rev": "an index that runs backwards: ref[n - 1 - jnp.arange(n)]",
    "random_bits": "random numbers drawn outside and passed in, or a counter-based generator in integer arithmetic",
}


def add_lowering_hint(primitive: str, text: str) -> None:
    """Adds advice to the finding of a primitive without a lowering, as in `write instead: TEXT`.

    Args:
      primitive: its name, as the finding shows it.
      text: what to write instead; it replaces an earlier hint for the primitive.

    Raises:
      ValueError: either is empty.
    """
    if not primitive.strip() or not text.strip():
        raise ValueError(f"add_lowering_hint: primitive and text must not be empty, not {primitive!r} and {text!r}")
    _HINTS[primitive] = text


def lowering_hint(primitive: str) -> str:
    """Returns what to write instead of a primitive, or ""."""
    return _HINTS.get(primitive, "")


@dataclass(frozen=True, slots=True)
class Excess:
    """A resource of which a kernel needs more than there is, in bytes (`B`) or as a count; None if unknown."""

    words: str
    resource: str
    needed: int | None = None
    available: int | None = None
    unit: str = ""


def format_size(size: int) -> str:
    """Returns a number of bytes with its unit."""
    return f"{size / MIB:.3g} MiB" if size >= MIB else f"{size / KIB:.3g} KiB"


_MOST_ARRAYS = 4  # that a message lists


def largest_arrays(arrays: Iterable[Any]) -> str:
    """Returns the largest of some arrays, each with a `size`, in words."""
    ordered = sorted(arrays, key=lambda array: -array.size)
    others = len(ordered) - _MOST_ARRAYS
    return "; ".join(map(str, ordered[:_MOST_ARRAYS])) + (f"; and {others} more" if others > 0 else "")


def part_that_fits(needed: int, available: int) -> str:
    """Returns the largest of 1/2, 1/4, ... of a need that is available."""
    return f"1/{1 << (-(-needed // available) - 1).bit_length()}"


# A text with a place for each group of a pattern, or a function of the groups.
_Sense = str | Callable[..., str | Excess]
# A pattern of JAX's or a compiler's text, the verdict, and the meaning.
Rule = tuple[re.Pattern[str], Verdict, _Sense]


def refused(pattern: str | re.Pattern[str], meaning: _Sense) -> Rule:
    """Returns the rule for an error about the kernel."""
    return re.compile(pattern), Verdict.COMPILE_ERROR, meaning


def lacking(pattern: str | re.Pattern[str], meaning: _Sense) -> Rule:
    """Returns the rule for an error about something without an implementation."""
    return re.compile(pattern), Verdict.UNIMPLEMENTED, meaning


_JAX = str(Path(jax.__file__).parent)
_LINE = re.compile(r'"([^"]+\.py)":(\d+)')
_MISSING = re.compile(r"unimplemented primitive in pallas (?:\w+ )?lowering(?: for [^:]{1,200})?: ([\w-]+)", re.I)


@dataclass(frozen=True, slots=True)
class Meaning:
    """The verdict of an error, its words for the kernel's author, and the resource that is exceeded, if it is known."""

    verdict: Verdict
    words: str
    excess: Excess | None = None

    def detail(
        self, stage: Stage, kernel: str, said: str, *, error: str = "", primitive: str = "", source: str = ""
    ) -> NotBuilt | ResourceExceeded:
        """Returns the failure as data; see the attributes of `NotBuilt`."""
        if (excess := self.excess) is None:
            return NotBuilt(stage, kernel, error, said, primitive, self.words, source=source)
        return ResourceExceeded(
            stage, kernel, excess.resource, excess.needed, excess.available, excess.unit, self.words, said, source
        )


def match_rule(text: str, rules: Sequence[Rule]) -> Meaning | None:
    """Returns the meaning of an error by the first rule whose pattern it matches."""
    for pattern, verdict, meaning in rules:
        if match := pattern.search(text):
            groups = [group or "" for group in match.groups()]
            try:
                found = meaning.format(*groups) if isinstance(meaning, str) else meaning(*groups)
            except (LookupError, ValueError):  # a wording that the rule does not know: JAX's own text says enough
                return None
            return Meaning(verdict, found) if isinstance(found, str) else Meaning(verdict, found.words, found)
    return None


def lowering_failure(error: Exception, name: str, rules: Sequence[Rule], line: str = "") -> Failure:
    """Returns the failure that rules find in JAX's exception at lowering, at `line` unless that shows a nearer one."""
    text = exception_text(error) or type(error).__name__
    first, kind = text.splitlines()[0], type(error).__name__
    equations = equations_being_lowered(error)
    source = line_of_nested(equations) or line
    stopped_at = equations[-1].primitive.name if equations else ""
    if missing := _MISSING.search(text):
        primitive = missing.group(1)
        instead = lowering_hint(primitive)
        hint = f"write instead: {instead}" if instead else ""
        meaning = f"primitive {primitive} has no lowering"
        return Failure(
            Verdict.UNIMPLEMENTED, NotBuilt(Stage.LOWER, name, kind, first, primitive, meaning, hint, source)
        )
    if found := match_rule(text, rules):
        detail = found.detail(Stage.LOWER, name, first, error=kind, primitive=stopped_at, source=source)
        return Failure(found.verdict, detail)
    verdict = Verdict.UNIMPLEMENTED if isinstance(error, NotImplementedError) else Verdict.COMPILE_ERROR
    return Failure(verdict, NotBuilt(Stage.LOWER, name, kind, text, stopped_at, source=source))


def advise_backends(failure: Failure, call: Call, hardware: str, others: str) -> Failure:
    """Returns the failure of a call on some hardware (`TPUs`), which advises `backends=` with the `others` (`gpu`).

    A call that is written for the hardware alone gets no advice.
    """
    if call.dialect != "any" or not isinstance(failure.detail, NotBuilt):
        return failure
    advice = f'if the kernel is not meant for {hardware}, declare backends=("interpret", "{others}")'
    hint = "; ".join(filter(None, (failure.detail.hint, advice)))
    return Failure(failure.verdict, replace(failure.detail, hint=hint))


def user_place(text: str) -> str:
    """Returns FILE:LINE of the user's code that a compiler's message names, or ""."""
    lines = ((path, line) for path, line in _LINE.findall(text) if not path.startswith(_JAX))
    return next((f"{relative_path(path)}:{line}" for path, line in lines), "")
