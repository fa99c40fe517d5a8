"""The facts that tell a reader which code some runs tested, when, and on what."""

from collections.abc import Iterable, Sequence

from kerneltest.records.runs import RunRecords


def project_of(runs: Sequence[RunRecords]) -> str:
    """Returns the names of the tested projects; "" if no run names one."""
    return _distinct(run.plan.project.name for run in runs)


def facts_of(runs: Sequence[RunRecords]) -> dict[str, str]:
    """Returns the commit, the date, JAX and the devices of some runs, as far as they are known."""
    plans = [run.plan for run in runs]
    days = sorted({plan.started[:10] for plan in plans} - {""})
    facts = {
        "commit": _distinct(plan.project.commit for plan in plans),
        "date": " to ".join(dict.fromkeys([*days[:1], *days[-1:]])),
        "JAX": _distinct(plan.environment.get("jax", "") for plan in plans),
        "devices": _distinct(plan.environment.get("devices", "") for plan in plans),
    }
    return {name: value for name, value in facts.items() if value}


def _distinct(values: Iterable[str]) -> str:
    """Joins different values, without empty ones."""
    return ", ".join(dict.fromkeys(filter(None, values)))
