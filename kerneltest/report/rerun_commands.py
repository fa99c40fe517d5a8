"""The shell commands and Python lines that reproduce a finding, as reports print them.

Their parts come from records, which are untrusted: `_command` is the only place that quotes them.
"""

import keyword
import os
import shlex
from dataclasses import replace
from pathlib import Path

from kerneltest.core.ids import PairingId
from kerneltest.core.verdicts import GroupName
from kerneltest.execute.settings import RunSettings, option_words
from kerneltest.records.run_plan import Plan
from kerneltest.records.schema import Record


def pytest_command(plan: Plan | RunSettings, backend: str, item: str, root: str = "") -> str:
    """Returns the shell command that runs an item again with the same cases; its id is relative to `root`."""
    if root:
        node = PairingId.parse(item)
        item = str(replace(node, file=Path(os.path.normpath(Path(root, node.file))).as_posix()))
    selected = f"./{item}" if item.startswith("-") else item  # not an option, whatever its name
    return _command("pytest", "-p", "kerneltest", *option_words(plan), "--kt-backends", backend, selected)


def repro_command(folder: str, case: str, backend: str) -> str:
    """Returns the shell command that judges a finding's saved inputs again."""
    return _command("kerneltest", "repro", folder, case, "--backend", backend)


def python_lines(plan: Plan, record: Record) -> str | None:
    """Returns Python lines that check a record's case; None if `kt.check` cannot, or the pairing cannot be imported."""
    pairing = PairingId.parse(record.pairing)
    module, name = pairing.file.removesuffix(".py").replace("/", "."), pairing.name
    importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in [*module.split("."), name])
    if record.group in (GroupName.DRAWN, GroupName.PROOFS, GroupName.SANITIZED) or not record.case or not importable:
        return None
    orders = f", orders={plan.orders!a}" if plan.orders else ""
    return (
        f"import kerneltest as kt\nfrom {module} import {name}\n\n"
        f"result = kt.check({name}, backends=[{record.backend!a}], depth={plan.depth!a}, seed={plan.seed!a},\n"
        f"                  case={record.case!a}{orders})\n"
        "print(result.findings[0].message, result.findings[0].arguments)"
    )


def _command(*words: str) -> str:
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    # If possible in double quotes, which Windows understands as well.
    quoted = shlex.quote(word)
    return f'"{word}"' if quoted != word and not set(word) & set('"$`\\!\r\n') else quoted
