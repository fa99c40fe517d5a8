"""Every kernel in `kernels/` has a pairing in `suites/`, and kernels know nothing of kerneltest."""

import ast
import functools
from importlib import import_module
from pathlib import Path
from typing import Any

import kerneltest as kt

ROOT = Path(__file__).parent.parent
MODULES = sorted(path.stem for path in (ROOT / "kernels").glob("*.py") if path.stem != "__init__")


def _public_kernels() -> set[tuple[str, str]]:
    """(module, name) of every public function that reaches a Pallas call, read off the source."""
    found = set()
    for module in MODULES:
        tree = ast.parse((ROOT / "kernels" / f"{module}.py").read_text(encoding="utf-8"))
        bodies = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        aliases = [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
        imported = {a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
        reaching = {"pallas_call", "kernel", "core_map", "emit_pipeline"} | (imported & {"matmul", "tpu_tiled_matmul"})

        def reaches(node: ast.AST, reaching: set[str] = reaching) -> bool:
            names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            return bool((names | {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}) & reaching)

        kernels = {name for name, node in bodies.items() if reaches(node)}
        kernels |= {name for name, node in bodies.items() if reaches(node, kernels)}
        partials = {
            name for name in aliases if isinstance(getattr(import_module(f"kernels.{module}"), name), functools.partial)
        }
        found |= {(module, name) for name in kernels | partials if not name.startswith("_")}
    return found


def _paired_kernels() -> list[Any]:
    return [
        value.kernel
        for path in (ROOT / "suites").glob("test_*.py")
        for value in vars(import_module(f"suites.{path.stem}")).values()
        if isinstance(value, kt.Pairing)
    ]


def test_every_kernel_has_a_pairing() -> None:
    paired = _paired_kernels()
    kernels = _public_kernels()
    assert len(kernels) == 45
    unpaired = [pair for pair in kernels if getattr(import_module(f"kernels.{pair[0]}"), pair[1]) not in paired]
    assert unpaired == []


def test_kernels_import_nothing_of_kerneltest() -> None:
    for module in MODULES:
        assert "kerneltest" not in (ROOT / "kernels" / f"{module}.py").read_text(encoding="utf-8")
