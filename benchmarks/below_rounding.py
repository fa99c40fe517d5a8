"""Counts the bugs that are smaller than the rounding of a kernel's dtype and that kerneltest finds or remarks on.

    python -m benchmarks.below_rounding [--jobs N] [--only TEXT]

Twenty bugs, each in every float dtype of its pairing, on `interpret` at `quick`. Beside the findings of a whole run
stand those that need no question about the formula: what is left when only the rounding is judged. A formula that is
less than four ulps of float32 off is a remark and no finding. Exits with 1 if a bug is neither.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from unittest import mock

import jax

import kerneltest as kt
from benchmarks.side_by_side import run_side_by_side
from kerneltest.execute.formula import Formula
from kerneltest.records.schema import FormulaAnswer
from tests.corpus import BELOW_ROUNDING
from tests.corpus.twin import Twin


def found_dtypes(bug: Twin, asks_formula: bool) -> tuple[dict[str, str], dict[str, float], float]:
    """Returns the cause that a first finding states and the ulps of remarks, both by dtype, and the seconds."""
    without = mock.patch.object(Formula, "ask", return_value=(FormulaAnswer(), ()))
    started = time.perf_counter()
    with nullcontext() if asks_formula else without:
        result = kt.check(bug.broken(), backends=("interpret",), depth="quick")
    causes: dict[str, str] = {}
    for finding in result.findings:
        cause = getattr(finding.record.detail, "cause", None)
        causes.setdefault(finding.record.dtype, cause.what if cause is not None else "unknown")
    ulps: dict[str, float] = {}
    for record in result.records:
        if record.formula is not None and record.formula.ulps:
            ulps[record.dtype] = max(ulps.get(record.dtype, 0.0), record.formula.ulps)
    return causes, ulps, time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings for one bug, by dtype.

    Attributes:
      dtypes: the float dtypes of its pairing.
      causes: the cause that the first finding states, by dtype.
      ulps: the ulps of float32 by which a remark says that the formula is off, by dtype.
      alone: the dtypes in which it is found if only the rounding is judged.
      seconds: of the whole run.
    """

    dtypes: tuple[str, ...]
    causes: dict[str, str]
    ulps: dict[str, float]
    alone: frozenset[str]
    seconds: float


def find(number: int) -> Answer:
    """Runs a bug with both questions, and with the rounding alone."""
    bug = BELOW_ROUNDING[number]
    dtypes = tuple(name for name in ("float32", "bfloat16", "float16") if name in _float_dtypes(bug))
    rounding, _, _ = found_dtypes(bug, asks_formula=False)
    causes, ulps, seconds = found_dtypes(bug, asks_formula=True)
    return Answer(dtypes, causes, ulps, frozenset(rounding), seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a part of a bug's or a pairing's name")
    parser.add_argument("--jobs", type=int, default=1, help="bugs side by side, each in a process of its own")
    options = parser.parse_args()
    chosen = [number for number, bug in enumerate(BELOW_ROUNDING) if options.only in bug.name]
    cells = found = alone = formula = remarked = 0
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        for number, answer in run_side_by_side(pool, find, chosen):
            bug = BELOW_ROUNDING[number]
            cells += len(answer.dtypes)
            alone += sum(name in answer.alone for name in answer.dtypes)
            found += sum(name in answer.causes for name in answer.dtypes)
            formula += sum(answer.causes.get(name) == "formula" for name in answer.dtypes)
            small = {name: f"{ulps:.2g} ulps" for name, ulps in answer.ulps.items()}
            remarked += sum(name in small and name not in answer.causes for name in answer.dtypes)
            told = ", ".join(f"{name} {answer.causes.get(name, small.get(name, 'MISSED'))}" for name in answer.dtypes)
            print(f"{bug.name}: {told} ({answer.seconds:.0f} s)", flush=True)
    print(
        f"JAX {jax.__version__}: {found} of {cells} found, {formula} called a wrong formula; {alone} by rounding alone"
        f"; {remarked} remarked on"
    )
    sys.exit(found + remarked != cells)


def _float_dtypes(bug: Twin) -> set[str]:
    return {name for leaf in bug.right().leaves.values() for name in map(str, leaf.dtypes)}


if __name__ == "__main__":
    main()
