"""A green run on one backend imports only what it uses, and pytest rewrites none of it."""

import ast
from collections import Counter
from pathlib import Path

import kerneltest
from tests import forked
from tests.plugins import PLUGINS

SUITE = """
import kerneltest as kt
from kernels.vector_add import vector_add

@kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def added(x, y):
    return x + y
"""
UNUSED = (
    *("hypothesis", "jaxtyping", "jinja2", "ray", "triton", "z3"),
    *(f"jax._src.pallas.{each}.interpret.interpret_pallas_call" for each in ("mosaic", "mosaic_gpu")),
    *("kerneltest.backends.codegen", "kerneltest.backends.simulate", "kerneltest.backends.tpu"),
    *(
        "kerneltest.extensions.mutation.judging",
        "kerneltest.extensions.proofs.proof_search",
        "kerneltest.localize",
        "kerneltest.report.html",
        "kerneltest.shrink",
    ),
)
LIST_MODULES = f"""
import importlib
import sys

def pytest_runtest_logreport(report):
    if report.when == "call":
        importlib.invalidate_caches()  # which asks all finders
        print("LOADED", sorted({set(UNUSED)!r} & set(sys.modules)))
        rewritten = [n for n, m in sys.modules.items() if "AssertionRewriting" in repr(getattr(m, "__spec__", None))]
        print("REWRITTEN", sorted(n for n in rewritten if n.startswith("kerneltest.pytest_plugin.")))
        print("OURS", "kerneltest.pytest_plugin.worker" in sys.modules)
"""


def test_a_green_item_imports_only_what_it_uses(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(LIST_MODULES, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    options = ("-s", "-p", "no:cacheprovider", "-p", "no:html", "--kt-backends", "interpret", "--kt-depth", "quick")
    run = forked.fresh(tmp_path, "pytest", *PLUGINS, *options)
    for line in ("LOADED []", "REWRITTEN []", "OURS True"):
        assert line in run.stdout, run.stdout + run.stderr


PACKAGE = Path(kerneltest.__file__).parent
# Calls of `import_module`: the lazy tables, the modules of a folder, and names that users give.
BY_NAME = {
    "__init__.py": 3,
    "backends/registry.py": 1,
    "core/extension_registry.py": 1,
    "declare/kinds/__init__.py": 1,
    "extensions/__init__.py": 1,
    "reproduce/standalone.py": 1,
    "start/example_calls.py": 1,
}
# Other strings that name a module: those that child processes run, and those that may be loaded already.
NAMED = """
    backends.codegen.triton_compiler backends.codegen.xla_compiler backends.tpu.compiler declare.oracle_for
    declare.pairing extensions extensions.sanitizer.child extensions.watch.preloaded report report.html
    reproduce
"""
TABLES = ("__init__.py", "backends/registry.py", "extensions/__init__.py")


def test_no_import_is_hidden_in_a_string() -> None:
    trees = {p.relative_to(PACKAGE).as_posix(): ast.parse(p.read_text(encoding="utf-8")) for p in PACKAGE.rglob("*.py")}
    modules = {"kerneltest." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in trees}
    calls, named = Counter(), set()
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
                calls[name] += called in ("import_module", "__import__")
            if isinstance(node, ast.Constant) and node.value in modules and name not in TABLES:
                named.add(node.value.removeprefix("kerneltest."))
    assert calls == Counter(BY_NAME)
    assert named == set(NAMED.split())
