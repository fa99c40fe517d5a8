"""The commands and the few lines that show a finding again."""

import shlex

from kerneltest.plan.drawn import FUZZ
from kerneltest.records.runs import Run
from kerneltest.records.schema import Record
from kerneltest.report.text.commands import repro_command


def commands(record: Record, run: Run) -> list[str]:
    """For the terminal, the last for Python: the item, the saved inputs where there are any, the one case."""
    plan = run.plan
    options = [
        "--kt-depth",
        plan.depth,
        "--kt-seed",
        str(plan.seed),
        *(["--kt-fuzz", str(plan.fuzz)] * bool(plan.fuzz)),
        "--kt-backends",
        record.backend,
    ]
    found = [shlex.join(["pytest", "-p", "kerneltest", *options, record.item])]
    if record.evidence and record.evidence.file:
        found.append(repro_command(run.name, record.case, record.backend))
    file, _, name = record.pairing.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    plain = all(part.isidentifier() for part in [*module.split("."), *name.split("::")])
    if record.group == FUZZ or not record.case or not plain:
        return found  # what was drawn is in the saved inputs alone
    return [
        *found,
        f"import kerneltest as kt\nfrom {module} import {name}\n\n"
        f"result = kt.check({name}, backends=[{record.backend!a}], depth={plan.depth!a}, seed={plan.seed},\n"
        f"                  case={record.case!a})\n"
        "print(result.findings[0].message, result.findings[0].arguments)",
    ]
