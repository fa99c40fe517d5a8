"""What a lowering raised, in words for the author of a kernel."""

import re
from collections.abc import Callable, Sequence

from kerneltest.backends.hints import lowering_hint
from kerneltest.core.details import NotBuilt, Stage
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.names import equations_being_lowered, line_of_nested

# What JAX says, the verdict, and what it means: a text with a place for each group, or a function of the groups.
Rule = tuple[re.Pattern[str], Verdict, str | Callable[..., str]]

_MISSING = re.compile(r"unimplemented primitive in pallas (?:\w+ )?lowering(?: for [^:]+)?: ([\w-]+)", re.IGNORECASE)


def meant(text: str, rules: Sequence[Rule]) -> tuple[Verdict, str] | None:
    """The verdict and the meaning of a message by the first rule that knows it."""
    for words, verdict, meaning in rules:
        if match := words.search(text):
            groups = [group or "" for group in match.groups()]
            return verdict, meaning.format(*groups) if isinstance(meaning, str) else meaning(*groups)
    return None


def explained(error: Exception, name: str, rules: Sequence[Rule], line: str = "") -> Failure:
    """What JAX said while it lowered a kernel, with the primitive, the user's line (`line` where none is nearer) and a
    mend."""
    text = str(error) or type(error).__name__
    first = text.splitlines()[0]
    equations = equations_being_lowered(error)
    source = line_of_nested(equations) or line
    stopped_at = equations[-1].primitive.name if equations else ""

    def not_built(said: str, primitive: str, meaning: str = "", hint: str = "") -> NotBuilt:
        return NotBuilt(Stage.LOWER, name, type(error).__name__, said, primitive, meaning, hint, source)

    if missing := _MISSING.search(text):
        primitive = missing.group(1)
        instead = lowering_hint(primitive)
        hint = f"write instead: {instead}" if instead else ""
        return Failure(
            Verdict.UNIMPLEMENTED, not_built(first, primitive, f"primitive {primitive} has no lowering", hint)
        )
    if found := meant(text, rules):
        verdict, meaning = found
        return Failure(verdict, not_built(first, stopped_at, meaning))
    verdict = Verdict.UNIMPLEMENTED if isinstance(error, NotImplementedError) else Verdict.COMPILE_ERROR
    return Failure(verdict, not_built(text, stopped_at))
