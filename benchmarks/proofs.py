"""What is proved of the suites' kernels, and found in broken ones: `python benchmarks/proofs.py [NAME ...]`.

Two tables, written to reports/proofs/README.md: each kernel of the suites that Triton lowers, with every choice of
dtypes and static arguments, and each variant of `tests/corpus` that a run on the simulator finds out of bounds
or in a race, with the counterexample that a proof of it meets. A NAME, part of a pairing's, picks some and only prints.
"""

import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax
import z3

from benchmarks.device_outputs import ROOT, pairings
from kerneltest.backends.registry import resolve
from kerneltest.core.targets import TARGETS
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.pairing import Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings
from kerneltest.extensions.proofs.proof_search import Proof, ProofKind, choices, prove_choice
from kerneltest.plan.signatures import signatures
from tests.corpus import VARIANTS, Twin

FOLDER, BACKEND, TARGET = ROOT / "reports" / "proofs", "simulate:sm_90", TARGETS["sm_90"]
MEMORY = (Verdict.OUT_OF_BOUNDS, Verdict.RACE)


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of a kernel, by choice of dtypes and static arguments.

    Attributes:
      name: of the pairing, or of the variant.
      proofs: of each choice, those of its Pallas calls.
      seconds: of each choice.
    """

    name: str
    proofs: tuple[tuple[Proof, ...], ...]
    seconds: tuple[float, ...]

    @property
    def answer(self) -> ProofKind:
        """A counterexample if there is one, and proved if all is."""
        kinds = {proof.kind for each in self.proofs for proof in each}
        return next(
            kind for kind in (ProofKind.COUNTEREXAMPLE, ProofKind.NOT_DECIDED, ProofKind.PROVED) if kind in kinds
        )

    @property
    def in_the_way(self) -> str:
        reasons = Counter(proof.reason for each in self.proofs for proof in each if proof.reason)
        return reasons.most_common(1)[0][0] if reasons else ""

    @property
    def counterexample(self) -> str:
        found = [proof.counterexample for each in self.proofs for proof in each if proof.counterexample is not None]
        return str(found[0]).replace("\n", "; ") if found else ""


def proved(name: str, pairing: Pairing, most: int | None = None) -> Row:
    """Every choice of a kernel, or the first few."""
    proofs, seconds = [], []
    for choice in choices(pairing)[:most]:
        started = time.perf_counter()
        proofs.append(prove_choice(pairing, choice, TARGET))
        seconds.append(time.perf_counter() - started)
    row = Row(name, tuple(proofs), tuple(seconds))
    print(f"{name}: {row.answer}, {statistics.median(seconds):.1f} s {row.in_the_way}", file=sys.stderr, flush=True)
    return row


def triton_kernels() -> Iterator[tuple[str, Pairing]]:
    """The suites' kernels that are for Triton."""
    (backend,) = resolve([BACKEND])
    for name, pairing in pairings():
        planned = plan_pairing(pairing, name, [backend], RunSettings(depth="quick"))
        if planned.items and signatures(pairing, "quick"):
            yield name, pairing


def is_found_in_memory(variant: Twin) -> bool:
    """Whether the simulator finds a variant out of bounds or in a race, on planned cases."""
    pairing, cache = variant.broken(), Cache()
    try:
        for item in plan_pairing(pairing, variant.name, resolve([BACKEND]), RunSettings(depth="quick")).items:
            if item.group.name == "structural":
                for outcome in run_item(item, cache):
                    if outcome.record.verdict in MEMORY:
                        return True
        return False
    finally:
        cache.process.pool.close()


def page(kernels: Sequence[Row], variants: Sequence[Row]) -> str:
    """reports/proofs/README.md."""
    whole = sum(row.answer is ProofKind.PROVED for row in kernels)
    every = [second for row in kernels for second in row.seconds]
    found = sum(row.answer is ProofKind.COUNTEREXAMPLE for row in variants)
    lines = [
        "# Proofs over all sizes",
        "",
        f"`python benchmarks/proofs.py`, for {TARGET}: Python {platform.python_version()}, JAX {jax.__version__}, "
        f"z3 {z3.get_version_string()}. [What a proof says](../../docs/proofs.md).",
        "",
        f"Of {len(kernels)} kernels {whole} are proved at all admitted sizes. A choice of dtypes and static arguments "
        f"takes {statistics.median(every):.1f} s (median of {len(every)}; the longest {max(every):.1f} s).",
        "",
        "| kernel | answer | choices | median s | in the way |",
        "| --- | --- | --- | --- | --- |",
        *(
            f"| `{r.name}` | {r.answer} | {len(r.seconds)} | {statistics.median(r.seconds):.1f} | {r.in_the_way} |"
            for r in kernels
        ),
        "",
        f"Of {len(variants)} variants that the simulator finds out of bounds or in a race, {found} get a counterexample"
        " that it confirms.",
        "",
        "| variant | answer | s | counterexample |",
        "| --- | --- | --- | --- |",
        *(f"| {r.name} | {r.answer} | {r.seconds[0]:.1f} | {r.counterexample or r.in_the_way} |" for r in variants),
    ]
    return "\n".join(lines) + "\n"


def main(names: list[str]) -> int:
    picked = [(n, p) for n, p in triton_kernels() if not names or any(name in n for name in names)]
    kernels = [proved(name, pairing) for name, pairing in picked]
    picked_variants = [
        v for v in VARIANTS if not v.edit.numeric and (not names or any(name in v.name for name in names))
    ]
    variants = [proved(v.name, v.broken(), 1) for v in picked_variants if is_found_in_memory(v)]
    text = page(kernels, variants)
    if not names:
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / "README.md").write_text(text, encoding="utf-8")
    print(text)
    return 0 if all(row.answer is ProofKind.COUNTEREXAMPLE for row in variants) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
