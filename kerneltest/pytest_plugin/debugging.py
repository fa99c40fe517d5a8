"""`--pdb`: the debugger stops at the pairing, where the arrays of the smallest case are local variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from kerneltest.execute.item import Item


def raise_at_pairing(error: Exception, item: Item, names: Mapping[str, object]) -> NoReturn:
    """Raises an error in a frame at the oracle's first line, among the names of its module."""
    oracle: Any = item.pairing.oracle
    code = getattr(oracle, "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code is not None else ("<oracle>", 1)
    namespace = {**getattr(oracle, "__globals__", {}), "__error__": error}
    parameters = ", ".join(name for name in names if name.isidentifier())
    source = "\n" * (line - 1) + f"def case({parameters}): raise __error__"
    exec(compile(source, file, "exec"), namespace)
    namespace["case"](**{name: value for name, value in names.items() if name.isidentifier()})
    raise error


def case_arrays(folder: Path, item: Item) -> dict[str, object]:
    """Returns the inputs of an item's smallest failing case, run again, with `expected`, `got` and `wrong`."""
    from kerneltest.records.record_files import read_records, read_reproducers
    from kerneltest.reproduce.rerun import ReproductionError, run_saved_case

    recorded = [*(reproducer.record for reproducer in read_reproducers(folder)), *read_records(folder)]
    mine = [each for each in recorded if each.item == item.name and each.backend == item.backend.id]
    record = next((each for each in mine if each.evidence is not None and each.evidence.file), None)
    if record is None:
        return {}
    try:
        outcome = run_saved_case(folder, record, item.pairing, item.backend, item.settings)
    except ReproductionError:
        return {}
    arrays: dict[str, object] = {path.replace(".", "_"): value for path, value in (outcome.arguments or {}).items()}
    compared = outcome.comparison
    if compared is None:
        return arrays
    return {**arrays, "expected": compared.expected, "got": compared.actual, "wrong": compared.wrong}
