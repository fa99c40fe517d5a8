"""How many lines a pairing takes, its oracle included: `python benchmarks/pairing_lines.py [FOLDER]`."""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

SHIPPED = Path(__file__).parent.parent / "suites" / "jax_ops"


def pairings(path: Path) -> Iterator[tuple[str, int]]:
    """Each pairing of a file: its oracle's name, and the lines from its decorator to the oracle's last."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            first = min(each.lineno for each in node.decorator_list)
            yield node.name, (node.end_lineno or node.lineno) - first + 1


def main(folder: Path) -> None:
    """Prints a table: the pairings' own lines, and a file's lines for each of its pairings, shared ones included."""
    own, whole = [], []
    print("| file | pairings, each with its lines | lines of the file, for each pairing |")
    print("| --- | --- | --- |")
    for path in sorted(folder.glob("test_*.py")):
        found = list(pairings(path))
        lines = len(path.read_text(encoding="utf-8").splitlines())
        own += [count for _, count in found]
        whole += [lines / len(found)] * len(found)
        shown = ", ".join(f"`{name}` {count}" for name, count in found)
        print(f"| `{path.name}` | {shown} | {lines} / {len(found)} = {lines / len(found):.0f} |")
    told = f"median {statistics.median(own):g} lines, {statistics.median(whole):.0f} with shared ones"
    print(f"\n{len(own)} pairings; {told}.")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else SHIPPED)
