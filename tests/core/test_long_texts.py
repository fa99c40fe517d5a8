"""Everything that reads a text by JAX, a compiler, a kernel or a record reads it in linear time."""

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kerneltest.backends.codegen import reduction, triton_compiler
from kerneltest.backends.codegen import tiers as gpu_tiers
from kerneltest.backends.lowering_errors import lowering_failure, match_rule, user_place
from kerneltest.backends.tpu import errors, tiers
from kerneltest.core import children
from kerneltest.core.details import Crashed, DeviceLost, Hung, NotBuilt, Raised, Stage, Unavailable
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.media import lines_for_terminal
from kerneltest.core.verdicts import Verdict
from kerneltest.extensions.lowering_map import measuring
from kerneltest.extensions.sanitizer import processes
from kerneltest.report.text.lines import for_markdown
from kerneltest.trace.jax_compat import mosaic_gpu_interpreter, tpu_interpreter

LENGTH, SECONDS = 56_000, 1.0  # of processor time, for what takes a few milliseconds


def _sanitizer_records(text: str) -> Any:
    with TemporaryDirectory() as folder:
        file = Path(folder, "records.xml")
        file.write_text(text, encoding="utf-8", errors="surrogatepass")
        return processes.read_errors(file, "memcheck")


READERS: dict[str, Callable[[str], Any]] = {
    "the essence of an exception": lambda text: Raised("the kernel", "ValueError", text).essence,
    "the essence of a failure to lower": lambda text: NotBuilt(Stage.LOWER, "k", "", text).essence,
    "the essence of a crash": lambda text: Crashed("", text).essence,
    "the essence of a hang": lambda text: Hung(text).essence,
    "the essence of a lost device": lambda text: DeviceLost("", text).essence,
    "the essence of what is unavailable": lambda text: Unavailable(text).essence,
    "an exception": lambda text: exception_text(ValueError(text)),
    "a failure": lambda text: Failure(Verdict.CRASH, Crashed("", text), text),
    "a failure to lower": lambda text: lowering_failure(ValueError(text), "k", ()),
    "rules for Triton": lambda text: match_rule(text, gpu_tiers._RULES),
    "rules for TPUs": lambda text: match_rule(text, (*errors.LOWERING, *errors.COMPILING)),
    "amounts of VMEM": tiers._vmem_amounts,
    "a place in a compiler's text": user_place,
    "words of a lowering error": reduction._words,
    "float64 instructions": triton_compiler._DOUBLE.findall,
    "the last words of a child": children._last_words,
    "the interpreter of Mosaic GPU kernels": lambda text: mosaic_gpu_interpreter._failure(text, None),
    "its races": lambda text: mosaic_gpu_interpreter._failure(f"RACE DETECTED\n  read of {text}", None),
    "its accesses outside": lambda text: mosaic_gpu_interpreter._failure(f"IndexError: read of {text}", None),
    "the interpreter of TPU kernels": lambda text: (
        [
            pattern.search(text)
            for pattern in (tpu_interpreter._BLOCK, tpu_interpreter._REVISITED, tpu_interpreter._ACCESS)
        ]
        + [tpu_interpreter._FRAME.match(text)]
    ),
    "records of a sanitizer": _sanitizer_records,
    "a message of the lowering map": lambda text: measuring.one_line(measuring._AROUND.sub("", text)),
    "a terminal": lines_for_terminal,
    "Markdown": for_markdown,
}
# Each is repeated.
PARTS = (
    "a", "1", "1.", "1e", "1x", "0xf", "-", " ", "\n", "\t", "(", "[(", "[1, ", '"', "'", "<", ":", "1:", "/a",
    "x.py:1 ", '"x.py":', "a.", "aError: ", "tensor<1x", "vector<", "Key(memory_space_id=1,", "_", "Warpgroup(",
    "slice(1, ", "block index ", "block index 1 for x, ing [", " at ", "Timeout (", "<record>",
    "  read of a from Warp(", "barrier ", "last two dimensions of your block shape are divisible by",
    "Block spec for x in pallas_call ", " has block shape (", "rank 1 block shapes multiple of 1 tiling size (1 ",
    "(size=1) would exceed memory (size=1) space=smem tag = '", "Allocation (size=1) would exceed memory (size=1)",
    "size is a power of 2 shape (", "aligned to tiles dimension ", "unimplemented primitive in pallas lowering for a",
    'Out-of-bounds block index (1) for x "y" in iteration (1) ',
    "Revisited block 1 of output 1 in iteration (1). iterations (", "1 of 1 elements wrong", 'error: "', "note: ",
    "to not contain X{64|128} element types", "failed to legalize operation 'arith.a'", "\x1b[31m", "é", "\ud800",
)  # fmt: skip


@pytest.fixture
def no_garbage() -> Iterator[None]:
    """What other tests leave is not looked through while time is measured."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_garbage")
@pytest.mark.parametrize("reader", READERS)
def test_a_long_text_takes_milliseconds(reader: str) -> None:
    read, slow = READERS[reader], []
    for part in PARTS:
        text = (part * (LENGTH // len(part) + 1))[:LENGTH]
        for each in (text, f"{text} end", f"start: {text}"):
            begun = time.thread_time()
            read(each)
            if (took := time.thread_time() - begun) > SECONDS:
                slow.append((part, round(took, 2)))
    assert not slow


def test_an_exception_of_any_length_fits_into_a_record() -> None:
    assert exception_text(ValueError("long " * 1_000_000)).endswith("... and 4,980,000 more characters")
