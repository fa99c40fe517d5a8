"""The commands that show a finding again, as reports print them for a shell, and the same for Python.

Their parts come from records, which may come from anywhere: `_command` is the one place that quotes them.
"""

import keyword
import shlex
from typing import Protocol

from kerneltest.core.group_names import PROOFS, SANITIZED
from kerneltest.plan.explicit import FUZZ
from kerneltest.records.schema import Record


class Options(Protocol):
    """What decides which cases a run has: its plan has it, and so has the run itself."""

    @property
    def depth(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def fuzz(self) -> int: ...

    @property
    def prove(self) -> bool: ...

    @property
    def sanitize(self) -> tuple[str, ...]: ...

    @property
    def orders(self) -> int: ...


def pytest_command(options: Options, backend: str, item: str) -> str:
    """The command that runs one item again, with the same cases.

    Args:
      options: of the run.
      backend: the item's.
      item: its node id, from where pytest is started.
    """
    counts = {"--kt-fuzz": options.fuzz, "--kt-orders": options.orders}
    given = [word for option, count in counts.items() if count for word in (option, str(count))]
    given += ["--kt-prove"] if options.prove else []
    given += ["--kt-sanitize", ",".join(options.sanitize)] if options.sanitize else []
    selected = f"./{item}" if item.startswith("-") else item  # no option, whatever it is called
    depth, seed = ["--kt-depth", options.depth], ["--kt-seed", str(options.seed)]
    return _command("pytest", "-p", "kerneltest", *depth, *seed, *given, "--kt-backends", backend, selected)


def repro_command(folder: str, case: str, backend: str) -> str:
    """The command that judges a finding's saved inputs again."""
    return _command("kerneltest", "repro", folder, case, "--backend", backend)


def python_lines(options: Options, record: Record) -> str | None:
    """The lines that check a record's case; None where there are none.

    A drawn case is in the saved inputs alone, `kt.check` knows no proofs and no sanitizers, and a pairing may have no
    name to import it by.
    """
    file, _, name = record.pairing.partition("::")
    module = file.removesuffix(".py").replace("/", ".")
    importable = all(part.isidentifier() and not keyword.iskeyword(part) for part in [*module.split("."), name])
    if record.group in (FUZZ, PROOFS, SANITIZED) or not record.case or not importable:
        return None
    orders = f", orders={options.orders!a}" if options.orders else ""
    return (
        f"import kerneltest as kt\nfrom {module} import {name}\n\n"
        f"result = kt.check({name}, backends=[{record.backend!a}], depth={options.depth!a}, seed={options.seed!a},\n"
        f"                  case={record.case!a}{orders})\n"
        "print(result.findings[0].message, result.findings[0].arguments)"
    )


def _command(*words: str) -> str:
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    """A word for a shell: in the double quotes that Windows takes too, where nothing in it is special in these."""
    quoted = shlex.quote(word)
    return f'"{word}"' if quoted != word and not set(word) & set('"$`\\!\r\n') else quoted
