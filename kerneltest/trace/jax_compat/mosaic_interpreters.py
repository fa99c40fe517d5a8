"""Mosaic GPU's interpreter, and the primitives of Mosaic GPU that copy from shared to global memory."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax._src.pallas.mosaic_gpu import primitives
from jax._src.pallas.mosaic_gpu.core import MemorySpace
from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks, shared_memory
from jax._src.pallas.mosaic_gpu.interpret.params import InterpretGPUParams

from kerneltest.core.dtypes import Array
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.mosaic_threads import COPIES, Evaluate, alone, codes, known_parameters
from kerneltest.trace.jax_compat.names import line_of

# Before, copies to global memory, waits for them and `commit_smem` have no part in the order of things.
DETECTS_ALL_RACES = jax.__version_info__ >= (0, 11)

_ACCESS = re.compile(
    r"^ *(read|write) of (.*?) from (Warp\w*\(.*?\)|\d+, \d+),? (?:(\S+?:\d+)[:\d]* .*)?$", re.MULTILINE
)
_RAISED = re.compile(r"^(?:\w+\.)*(\w+Error): (.*(?:\n(?!(?:\w+\.)*\w+Error: |Traceback|At:|\s|$).*)*)", re.MULTILINE)
_SPACES: list[str] = [str(space.name).lower() for space in MemorySpace]
# JAX's own names, and what is shown in their place.
_PLAINLY: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\w*Key\(memory_space_id=(\d+),.*?buffer_id=(\d+)\)"), lambda m: f"{_SPACES[int(m[1])]} {m[2]}"),
    (re.compile(r"Warpgroup\(.*?block_id=(\d+), warpgroup_id=(\d+)\)"), lambda m: f"warpgroup {m[2]} of block {m[1]}"),
    (re.compile(r"^(\d+), (\d+)$"), lambda m: f"warpgroup {m[2]}"),
    (re.compile(r"slice\((\d+), (\d+)(?:, (?:1|None))?\)"), lambda m: f"{m[1]}:{m[2]}"),
    (re.compile(r"\[Access\(range=\((.*?)\), permutation=\w+\)\]|\[\((.*?)\)\]"), lambda m: f"[{m[1] or m[2]}]"),
)


_to_int: Any = getattr(shared_memory, "_to_int", None)  # since JAX 0.12


def _of_any_integer(x: Any) -> Any:
    # Where an interpreter is not compiled, its callbacks get NumPy's integers and no arrays of JAX's.
    return int(x) if isinstance(x, np.integer) else _to_int(x)


if _to_int is not None:
    shared_memory._to_int = _of_any_integer  # type: ignore[attr-defined, unused-ignore]


PARAMETERS = known_parameters(InterpretGPUParams, detect_races=True, on_race="raise", num_tma_threads_per_device=COPIES)
_WAITS = codes(shared_memory.Barrier, "wait", "_wait")


def run(call: Callable[..., Any], operands: Sequence[Any], evaluate: Evaluate | None = None) -> list[Array]:
    """The outputs of one interpreted kernel.

    Args:
      call: the interpreter, with the kernel in it.
      operands: of the kernel.
      evaluate: runs the kernel's threads, where the interpreter is not compiled.

    Raises:
      Failure: with what the interpreter found; its state is put right for the next kernel.
    """
    with alone(_WAITS, _describe, evaluate) as (watch, printed):
        try:
            outputs = [np.asarray(output) for output in call(*operands)]
            races = gpu_callbacks._races
            if races is not None and races.races_found:  # 0.11 prints them and goes on
                raise Failure(Verdict.RACE, _race(printed.getvalue()))
        except Failure:
            raise
        except Exception as error:
            raise _failure(str(error), watch.deadlock) from error
        finally:
            gpu_callbacks.reset_gpu_interpret_mode_state()
    return outputs


def _failure(text: str, deadlock: str) -> Failure:
    """What the text of an interpreter's exception, or a deadlock, says of the kernel."""
    if deadlock:
        return Failure(Verdict.HANG, deadlock)
    if "RACE DETECTED" in text:
        return Failure(Verdict.RACE, _race(text))
    # The first exception is the cause; those of other threads, and XLA's, quote it.
    raised = [each for each in _RAISED.findall(text) if not each[0].endswith("RuntimeError")]
    name, message = raised[0] if raised else ("RuntimeError", text)
    message = _plainly(message)
    if name == "IndexError" or "out-of-bounds" in message.lower():
        return Failure(Verdict.OUT_OF_BOUNDS, message)
    if name == "NotImplementedError":
        return Failure(Verdict.UNIMPLEMENTED, f"JAX's interpreter of Mosaic GPU kernels: {message}")
    if "read-side operations completed" in message:
        return Failure(
            Verdict.RACE,
            "the kernel ends while a copy to global memory still reads shared memory: end it with "
            "plgpu.wait_smem_to_gmem(0)",
        )
    misused = "a barrier is misused: " if re.search(r"[Bb]arrier.* phase", message) else ""
    return Failure(Verdict.RUNTIME_ERROR, f"{misused}{name}: {message}")


def _race(text: str) -> str:
    """The first race that JAX tells of, in one line."""
    done = {"read": "is read", "write": "is written"}
    accesses = [
        f"{_plainly(where)} {done[what]} by {_plainly(thread)}{_at(line)}"
        for what, where, thread, line in _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]
    ]
    return f"{', and '.join(accesses)}, in no order (a copy, once started, runs beside its warpgroup)"


def _at(line: str) -> str:
    return f" at {line}" if line else " in code of the pipeline's own"


def _plainly(text: str) -> str:
    for pattern, words in _PLAINLY:
        text = pattern.sub(words, text)
    return text


def _describe(at: dict[str, Any]) -> str:
    """What a thread waits for, from its local variables."""
    awaited, source = at["self"], getattr(at.get("logging_info"), "source_info", None)
    if "num_arrivals" not in vars(awaited):
        return f"a thread waits for {_number(awaited)}"
    line = "" if source is None else line_of(source)
    arrived = f"at which {awaited.arrivals_count} of {awaited.num_arrivals} arrived"
    return f"{_plainly(str(at.get('thread', 'a thread')))} waits for {_number(awaited)}{_at(line)}, {arrived}"


def _number(barrier: Any) -> str:
    memory: Any = gpu_callbacks._shared_memory
    for key, allocation in (memory.mem if memory is not None else {}).items():
        if allocation is barrier:
            return f"barrier {getattr(key, 'buffer_id', key)}"
    return "a barrier"


def is_copy_out(equation: Any) -> bool:
    """Whether it starts a copy from shared to global memory."""
    return equation.primitive is primitives.copy_smem_to_gmem_p


def is_predicated_copy_out(equation: Any) -> bool:
    """Whether it starts such a copy where its last operand, the predicate, is true."""
    return is_copy_out(equation) and bool(equation.params["has_user_predicate"])


def is_wait_for_copies_out(equation: Any) -> bool:
    """Whether it waits until at most its parameter `n` of the groups of such copies are under way."""
    # In JAX 0.10.2 `n` is an operand, and the interpreter waits for nothing.
    return equation.primitive is primitives.wait_smem_to_gmem_p and "n" in equation.params


def ends_copy_group(equation: Any) -> bool:
    """Whether the copies started before it make up a group."""
    return equation.primitive is primitives.commit_group_p or bool(equation.params.get("commit_group"))
