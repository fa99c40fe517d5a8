"""The closed list of verdicts, from harmless to severe."""

PASS = "pass"
EXPECTED = "expected"
UNAVAILABLE = "unavailable"

# What each means, in the words of the report. The order is that of severity: a cell shows its worst.
MEANING = {
    PASS: "agrees with the oracle",
    EXPECTED: "a declared limitation that did occur",
    UNAVAILABLE: "this machine cannot serve the backend, or the backend this kernel",
    "unexpected_pass": "a declared limitation that did not occur, or an error that was not raised",
    "mismatch": "finite values off by more than the bound",
    "special_mismatch": "a NaN, an infinity or a signed zero where the oracle has none, or the reverse",
    "nondeterministic": "the same inputs gave different bits",
    "input_modified": "the kernel wrote to an input",
    "unwritten": "an output element was never written",
    "uninitialised": "a result depends on memory that was never written",
    "race": "two programs touch one element and at least one writes",
    "out_of_bounds": "an access outside a buffer",
    "unimplemented": "a primitive has no lowering on this backend",
    "resource_exceeded": "more shared memory, registers or threads than the target has",
    "compile_error": "the kernel does not compile",
    "runtime_error": "the kernel raised while it was traced or run",
    "oracle_error": "the oracle raised, or returned what the kernel does not",
    "hang": "no answer within the time limit",
    "crash": "the process died",
}
SEVERITY = {verdict: rank for rank, verdict in enumerate(MEANING)}

NO_FINDING = frozenset({PASS, EXPECTED, UNAVAILABLE})
DECLARABLE = tuple(v for v in MEANING if v not in NO_FINDING and v != "unexpected_pass")


def worst(verdicts: "list[str] | set[str]") -> str:
    """The most severe of some verdicts (at least one)."""
    return max(verdicts, key=SEVERITY.__getitem__)
