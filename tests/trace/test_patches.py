"""JAX is patched only while an interpreter runs, and is afterwards as it was, whatever happens in between."""

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes, report_platform

ROOT = Path(__file__).parents[2]

# Compares every attribute of the modules that the interpreters use, their classes' included, with what JAX defines.
SCRIPT = """
import inspect, sys
import jax
from jax.experimental.pallas import mosaic_gpu, tpu
from jax._src import callback, source_info_util
from jax._src.pallas.mosaic.interpret import (
    interpret_pallas_call, race_detection_state, shared_memory, thread_map, vector_clock
)
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, interpret_pallas_call as _, shared_memory as _

STATE = {"_shared_memory", "_races", "races", "dma_id_counter"}  # which the interpreters themselves keep


def attributes():
    found = {"jax.default_backend": jax.default_backend}
    for name, module in list(sys.modules.items()):
        if not name.startswith(("jax._src.pallas.mosaic", "jax._src.callback", "jax._src.source_info_util")):
            continue
        for key, value in list(vars(module).items()):
            if key not in STATE and not key.startswith("__"):
                found[f"{name}.{key}"] = value
            if inspect.isclass(value) and value.__module__ == name:
                members = vars(value).items()
                found.update({f"{name}.{key}.{k}": v for k, v in members if callable(v) and not k.startswith("__")})
    return found


def made_modules():
    return {name for name, module in sys.modules.items() if name.startswith("jax") and module.__spec__ is None}


before = attributes()
made_before = made_modules()
assert any(name.endswith("gpu_callbacks.jnp") for name in before)


def unchanged():
    after = attributes()
    changed = [name for name, value in before.items() if after.get(name) is not value]
    assert not changed, f"changed after {step}: {changed}"
    assert made_modules() == made_before, f"modules added by {step}: {made_modules() - made_before}"


step = "import"
import kerneltest as kt
import kerneltest.backends.interpret_mosaic
unchanged()

from kernels.vector_add import vector_add
from tests.corpus import twin
from tests.corpus.judged import run

def passes(name, broken):
    row = twin(name)
    return [record.verdict for record in run(row, broken, list(row.verdicts)[:1])] == ["pass"]

added = kt.oracle_for(vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"))(lambda x, y: x + y)
for step, run_step, ok in [
    ("a Triton kernel", lambda: kt.check(added, backends=["simulate:sm_90"], depth="quick").ok, True),
    ("a GPU kernel", lambda: passes("pipeline reads before the copy landed", False), True),
    ("a GPU kernel with a race", lambda: passes("pipeline reads before the copy landed", True), False),
    ("a deadlock", lambda: passes("pipeline waits for each other", True), False),
    ("a TPU kernel", lambda: passes("TPU kernel reads before the copy landed", False), True),
    ("a TPU kernel with a race", lambda: passes("TPU kernel reads before the copy landed", True), False),
    ("a TPU kernel on two cores", lambda: passes("cores write the same rows", True), False),
]:
    assert run_step() is ok, step
    unchanged()
"""


@pytest.mark.slow
def test_jax_is_unchanged_after_each_interpreted_case() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


def _owner() -> SimpleNamespace:
    return SimpleNamespace(value="JAX's")


def test_an_exception_restores_the_attribute() -> None:
    owner = _owner()
    seen = []

    def fail() -> None:
        with replace_attributes(Replacement(owner, "value", "ours")):
            seen.append(owner.value)
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert [*seen, owner.value] == ["ours", "JAX's"]


def test_a_missing_attribute_undoes_the_replacements_before_it() -> None:
    owner = _owner()
    missing = Replacement(owner, "absent", "ours")
    with pytest.raises(KeyError), replace_attributes(Replacement(owner, "value", "ours"), missing):
        pass
    assert vars(owner) == {"value": "JAX's"}


def test_nested_replacements_end_one_by_one() -> None:
    owner = _owner()
    outer, inner = Replacement(owner, "value", "outer"), Replacement(owner, "value", "inner")
    with replace_attributes(outer):
        with replace_attributes(inner):
            with replace_attributes(outer):
                assert owner.value == "outer"
            assert owner.value == "inner"
        assert owner.value == "outer"
    assert owner.value == "JAX's"


def test_replacements_that_overlap_between_threads_leave_jax_as_it_was() -> None:
    owner = _owner()
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with replace_attributes(Replacement(owner, "value", "theirs")):
            entered.set()
            assert leave.wait(120)

    thread = threading.Thread(target=other)
    with replace_attributes(Replacement(owner, "value", "ours")):
        thread.start()
        assert entered.wait(120)
        assert owner.value == "theirs"
    assert owner.value == "theirs"
    leave.set()
    thread.join()
    assert owner.value == "JAX's"


def test_a_thread_that_outlives_the_replacement_sees_jaxs_own_attribute() -> None:
    owner = _owner()
    over, seen = threading.Event(), []

    def late() -> None:
        seen.append(owner.value)
        assert over.wait(120)
        seen.append(owner.value)

    with replace_attributes(Replacement(owner, "value", "ours")):
        thread = threading.Thread(target=late)
        thread.start()
        while not seen:
            pass
    over.set()
    thread.join()
    assert seen == ["ours", "JAX's"]


def test_another_thread_keeps_its_platform() -> None:
    real, seen = jax.default_backend(), []
    with report_platform(lambda: "gpu"):
        thread = threading.Thread(target=lambda: seen.append(jax.default_backend()))
        thread.start()
        thread.join()
        assert jax.default_backend() == "gpu"
        with report_platform(lambda: ""):
            assert jax.default_backend() == real
        assert jax.default_backend() == "gpu"
    assert seen == [jax.default_backend()] == [real]
