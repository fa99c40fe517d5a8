"""How a verdict looks: a letter and a kind. Kinds have colours that colour-blind readers can tell apart (page.css)."""

from kerneltest.core.verdicts import MEANING, SEVERITY

# Each verdict's letter says it without colour.
LETTERS = {
    "pass": "✓",
    "expected": "≈",
    "unavailable": "–",
    "unexpected_pass": "!",
    "mismatch": "M",
    "special_mismatch": "S",
    "nondeterministic": "N",
    "input_modified": "I",
    "unwritten": "W",
    "uninitialised": "U",
    "race": "R",
    "out_of_bounds": "O",
    "unimplemented": "L",
    "resource_exceeded": "X",
    "compile_error": "C",
    "runtime_error": "E",
    "oracle_error": "Q",
    "hang": "H",
    "crash": "K",
    "nothing compared": "∅",
    "missing": "?",
}
GAPS = {
    "nothing compared": "every case passed, and none compared anything",
    "missing": "planned, and not recorded",
}
MEANINGS = {**MEANING, **GAPS}
_VALUES = ("mismatch", "special_mismatch", "nondeterministic", "input_modified")
_MEMORY = ("unwritten", "uninitialised", "race", "out_of_bounds")
_BUILD = ("unimplemented", "resource_exceeded", "compile_error")


def kind(verdict: str) -> str:
    """The kind whose colour a verdict takes: values, memory, build, broken, or its own name where harmless."""
    if verdict in ("pass", "expected", "unavailable"):
        return verdict
    for name, members in (("values", _VALUES), ("memory", _MEMORY), ("build", _BUILD)):
        if verdict in members:
            return name
    return "broken"


def rank(verdict: str) -> int:
    """From harmless to severe; gaps in the bookkeeping are worse than any finding."""
    return SEVERITY.get(verdict, len(SEVERITY) + list(GAPS).index(verdict) if verdict in GAPS else len(SEVERITY))
