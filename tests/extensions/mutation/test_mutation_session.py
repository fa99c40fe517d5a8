"""Mutants judged by a pairing that is asked much, and by one that is asked little."""

import inspect
import json
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import pytest
from jax.experimental import pallas as pl

import kerneltest as kt
from kernels import rms_norm
from kerneltest.__main__ import main
from kerneltest.execute.cache import Cache
from kerneltest.execute.runner import run_item
from kerneltest.execute.watchdog import limit_time
from kerneltest.extensions.mutation.judging import MutationSession, Trial, TrialEnd, UnfitPairingError, plan_items
from kerneltest.extensions.mutation.operators import OPERATORS
from kerneltest.extensions.mutation.results import advise, count_disregarded, count_ends
from kerneltest.records.journal import Journal
from tests.extensions.mutation import weak_suite

SUITES = Path(__file__).parents[3] / "suites"
BOTH = "interpret,simulate:sm_90"


def _trials(name: str, backends: str = BOTH) -> list[Trial]:
    session = MutationSession(plan_items(getattr(weak_suite, name), name, backends))
    trials = [session.judge(mutant) for mutant in session.mutants(OPERATORS.entries())]
    assert not count_disregarded(trials)
    return trials


@pytest.fixture(scope="module")
def weak() -> list[Trial]:
    return _trials("weak")


@pytest.fixture(scope="module")
def strong() -> list[Trial]:
    return _trials("strong")


def test_a_pairing_that_is_asked_much_finds_nearly_all(strong: list[Trial]) -> None:
    score = count_ends(strong)
    assert score.share is not None
    assert score.share > 0.97, [trial for trial in strong if trial.end is TrialEnd.SURVIVED]
    assert score.killed > 35
    assert score.invalid == 0


def test_wrong_uses_of_memory_count(strong: list[Trial]) -> None:
    (dropped,) = (t for t in strong if t.mutant.phrase == "the store without its mask")
    assert dropped.kill is not None
    assert (dropped.kill.backend, dropped.kill.verdict) == ("simulate:sm_90", "out_of_bounds")


def test_a_pairing_that_is_asked_little_is_told_what_would_find_more(weak: list[Trial], strong: list[Trial]) -> None:
    score = count_ends(weak)
    assert score.share is not None
    assert score.share < 0.8
    left = [trial.mutant for trial in weak if trial.end in (TrialEnd.SURVIVED, TrialEnd.EQUIVALENT)]
    said: list[str] = []
    found = advise(weak_suite.weak, "weak", "quick", left, said.append, Journal())
    texts = [each.text for each in found]
    assert texts[0] == "leave out tolerance="
    assert "without values=(16,)" in texts[1]
    assert texts[2] == "leave out domain= of x"
    assert len(said) >= 3
    told = f"leave out tolerance=: finds {found[0].found} of {len(left)} remaining mutants"
    assert str(found[0]).startswith(told)
    followed = count_ends(strong).share
    assert followed is not None
    assert followed > 0.9


def test_a_mutant_that_no_planned_case_tells_apart_is_tried_a_depth_further(weak: list[Trial]) -> None:
    ends = Counter(trial.end for trial in weak)
    assert ends[TrialEnd.EQUIVALENT] > 5  # one length and no NaN: the mask and the guard make no difference
    assert all(not trial.note for trial in weak if trial.end is TrialEnd.EQUIVALENT)


def test_a_kernel_may_return_a_scalar() -> None:
    trials = _trials("scalar", "interpret")
    assert {trial.end for trial in trials} <= {TrialEnd.KILLED, TrialEnd.EQUIVALENT}
    assert sum(trial.end is TrialEnd.KILLED for trial in trials) > 5


def test_the_oracle_is_not_asked_again_what_a_run_has_asked() -> None:
    asked: list[int] = []

    @kt.oracle_for(weak_suite.total, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
    def counted(x: Any) -> Any:
        asked.append(1)
        return (x + 1.0).sum()

    def judge_all(session: MutationSession) -> int:
        before = len(asked)
        for mutant in session.mutants(OPERATORS.entries()):
            session.judge(mutant)
        return len(asked) - before

    items, cache = plan_items(counted, "counted", "interpret"), Cache()
    for item in items:
        list(run_item(item, cache))
    # What is left asks how exact the oracle is, which no right kernel needs to know.
    assert judge_all(MutationSession(items, cache)) < judge_all(MutationSession(items))


def test_a_case_that_finds_the_kernel_itself_judges_no_mutants() -> None:
    items = plan_items(weak_suite.mistaken, "mistaken", "interpret")
    records = [outcome.record for item in items for outcome in run_item(item, Cache())]
    found = {(record.family, record.signature) for record in records if record.verdict.is_finding}
    session = MutationSession(items)
    trials = [session.judge(mutant) for mutant in session.mutants(OPERATORS.entries())]
    kills = {(trial.kill.family, trial.kill.signature) for trial in trials if trial.kill is not None}
    assert count_disregarded(trials)
    assert kills
    assert not kills & found


def test_a_pairing_for_other_backends_has_no_mutants() -> None:
    with pytest.raises(UnfitPairingError, match="mosaic_gpu"):
        plan_items(weak_suite.strong, "strong", "interpret-mosaic-gpu")


def test_the_command_prints_survivors_and_writes_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = Path(weak_suite.__file__).read_text(encoding="utf-8")
    (tmp_path / "test_weak.py").write_text(suite, encoding="utf-8")
    out = tmp_path / "out.json"
    operators = "comparison-edge,constant-by-a-little"
    place = f"{tmp_path / 'test_weak.py'}::weak"
    status = main(
        ["mutate", place, "--backends", "interpret", "--operators", operators, "--json", str(out), "--least", "1"]
    )
    said = capsys.readouterr().out
    assert status == 1
    assert "survived: operand 2 larger by a thousandth (constant-by-a-little, column" in said
    assert "jnp.maximum(x, -4.0) * 0.125 + 1.0" in said
    assert "To find more: leave out tolerance=: finds 2 of" in said
    (result,) = json.loads(out.read_text(encoding="utf-8"))
    assert result["survived"] == 2
    assert {mutant["mutant"]["operator"] for mutant in result["mutants"]} == set(operators.split(","))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a test file"),
        (
            [f"{SUITES / 'test_iota.py'}", "--operators", "none-such"],
            "no operator is called none-such; --list shows them",
        ),
        (["x.py", "--jobs", "0"], "--jobs must be at least 1, not 0"),
        ([f"{SUITES / 'test_iota.py'}::nothing"], "has no pairing nothing; it has"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mutate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_the_operators_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutate", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(OPERATORS.entries())
    assert any(line.startswith("mask-dropped") and line.endswith("is forgotten") for line in lines)


DYING = """
import os
from kerneltest.extensions.mutation.operators import EquationChange, mutation_operator

@mutation_operator()
def dies(equation):
    '''It ends the process.'''
    if equation.primitive.name == "reduce_sum":
        yield EquationChange("an exit", lambda: os._exit({status}))

@kt.oracle_for(total, x=kt.array("n", "float32"))
def dying(x):
    if {itself} and (np.abs(x) > 1e30).any():
        os._exit(1)
    return (x + 1.0).sum()
"""


@pytest.mark.parametrize(
    ("status", "itself", "end", "why"),
    [
        (1, False, "killed", "it ended the process in which it ran"),
        (0, False, "killed", "it ended the process in which it ran"),
        (1, True, "invalid", "the kernel itself ends the process in which it runs"),
    ],
)
def test_a_mutant_that_ends_its_process_is_found_unless_the_kernel_does_so(
    status: int,
    itself: bool,
    end: str,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OPERATORS, "_registered", dict(OPERATORS._registered))
    suite = Path(weak_suite.__file__).read_text(encoding="utf-8") + DYING.format(status=status, itself=itself)
    file = tmp_path / f"test_dying_{status}_{itself}.py"  # each is imported under its own name
    file.write_text(suite, encoding="utf-8")
    options = ("--backends", "interpret", "--jobs", "2", "--all", "--operators", "dies,constant-by-a-lot")
    assert main(["mutate", f"{file}::dying", *options]) == 0
    said = capsys.readouterr().out
    assert f"{end}: an exit (dies, column" in said
    assert why in said
    assert "killed: " in said


def _halved(x: jax.Array) -> jax.Array:
    def body(x_ref: Any, o_ref: Any) -> None:
        step = lambda state: (state[0] + 1, state[1] * 0.5)  # noqa: E731
        o_ref[...] = jax.lax.while_loop(lambda state: state[0] < 2, step, (0, x_ref[...]))[1]

    return pl.pallas_call(body, out_shape=x)(x)


@pytest.mark.parametrize("backend", ["interpret", "simulate:sm_90"])
def test_a_mutant_whose_loop_never_ends_is_found(backend: str) -> None:
    lengths = dict(n=kt.dim(values=(16,)))
    pairing = kt.oracle_for(_halved, x=kt.array("n", "float32"), dims=lengths)(lambda x: x / 4)
    journal = Journal()
    session = MutationSession(plan_items(pairing, "halved", backend), journal=journal)
    (backwards,) = (m for m in session.mutants(OPERATORS.entries()) if m.phrase == "`-` for `+`")
    with limit_time(journal, 1.0):
        trial = session.judge(backwards)
    assert trial.end is TrialEnd.KILLED
    assert trial.kill is not None
    assert trial.kill.verdict == "hang"
    assert journal.activity is None


def test_the_mutants_of_a_custom_gradient_are_on_its_own_lines() -> None:
    arrays = dict(x=kt.array("m n", "float32"), w=kt.array("n", "float32"))
    lengths = dict(m=kt.dim(values=(2,)), n=kt.dim(values=(4,)))
    pairing = kt.oracle_for(rms_norm.rms_norm, **arrays, dims=lengths, grad=True)(lambda x, w: x * w)
    session = MutationSession(plan_items(pairing, "norm", "interpret"))
    lines, first = inspect.getsourcelines(rms_norm._row_gradient)
    found = Counter(mutant.line - first for mutant in session.mutants(OPERATORS.entries()))
    assert all(found[number] for number, line in enumerate(lines) if "mean" in line and "dx =" not in line), found
