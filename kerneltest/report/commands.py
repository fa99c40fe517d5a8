"""The commands that show a finding again, as reports print them for a shell, and the same for Python.

Their parts come from records, which may come from anywhere: `_command` is the one place that quotes them.
"""

import keyword
import shlex

from kerneltest.core.group_names import GroupName
from kerneltest.execute.settings import RunSettings, option_words
from kerneltest.records.run_plan import Plan
from kerneltest.records.schema import Record


def pytest_command(plan: Plan | RunSettings, backend: str, item: str) -> str:
    """Returns the command that runs one item again, with the same cases.

    Args:
      plan: of the run, or its settings.
      backend: the item's.
      item: its node id, relative to the folder in which pytest is started.
    """
    selected = f"./{item}" if item.startswith("-") else item  # not an option, whatever its name
    return _command("pytest", "-p", "kerneltest", *option_words(plan), "--kt-backends", backend, selected)


def repro_command(folder: str, case: str, backend: str) -> str:
    """The command that judges a finding's saved inputs again."""
    return _command("kerneltest", "repro", folder, case, "--backend", backend)


def python_lines(plan: Plan, record: Record) -> str | None:
    """The lines that check a record's case; None where there are none.

    A drawn case is in the saved inputs alone, `kt.check` knows no proofs and no sanitizers, and a pairing may have no
    name to import it by.
    """
    file, _, name = record.pairing.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
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
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word for a shell: in the double quotes that Windows takes too, where nothing in it is special in these."""
    quoted = shlex.quote(word)
    return f'"{word}"' if quoted != word and not set(word) & set('"$`\\!\r\n') else quoted
