"""A green run on one backend imports only what it uses, and pytest rewrites none of it."""

from pathlib import Path

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
        "kerneltest.extensions.mutation.items",
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
