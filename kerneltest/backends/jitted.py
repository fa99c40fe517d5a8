"""Traced kernels compiled by `jax.jit` for one device: the common part of Pallas' interpreter and real devices."""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import numpy as np

from kerneltest.backends.base import Agree, ContradictedError, DType, Executable, Inputs, Outputs
from kerneltest.core.details import DeviceLost, InputModified, NotBuilt, Raised, ResourceExceeded, Stage
from kerneltest.core.dtypes import Array, is_float, is_packed
from kerneltest.core.failures import Failure, exception_text, warn_of_recovery
from kerneltest.core.precision import Precision
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.jax_triton import jax_triton_limit
from kerneltest.trace.jax_compat.patches import interpret_directly, keep_jax_frames
from kerneltest.trace.jax_compat.source_lines import describe_limitation, is_jax_limitation, processed_line
from kerneltest.trace.local_kernels import mesh_size, on_devices
from kerneltest.trace.machine import UnknownError
from kerneltest.trace.runnable import run_eagerly, runnable
from kerneltest.trace.tracing import Traced

# Words by which JAX, XLA and the drivers report these causes, while they compile and while a kernel runs.
_COMPILING = {
    Verdict.UNIMPLEMENTED: r"unimplemented primitive|no lowering|not implemented in pallas|rule for primitive",
    Verdict.RESOURCE_EXCEEDED: r"shared memory|resource_exhausted|out of resource|exceeds the limit",
}
_RUNNING = {
    Verdict.OUT_OF_BOUNDS: r"illegal_?\s?address|invalid_address_space|illegal memory access|memory access fault",
    Verdict.RESOURCE_EXCEEDED: r"resource_exhausted|out of memory",
}
# Errors of CUDA and HIP after which every call in the process fails.
_STICKY = re.compile("CUDA_ERROR_(?!OUT_OF_MEMORY)|hipError(?!OutOfMemory)")


@dataclass(frozen=True, slots=True)
class Jitted:
    """A compiled function of the leaves on a device of JAX."""

    compiled: Callable[..., Any]
    device: Any
    precision: Precision
    eager: bool = False  # it is the kernel itself, called outside of `jax.jit`, to which it may donate its arguments
    placement: Any = None  # where its arguments are put: on the device, or on each device of a kernel's mesh

    def run(self, leaves: Sequence[Array]) -> Outputs:
        (outputs,) = self.run_batch([leaves])
        return outputs

    def run_batch(self, cases: Sequence[Sequence[Array]]) -> Sequence[Outputs]:
        """Returns the outputs of several cases, all of which are queued on the device before the first is awaited."""
        try:
            carried = [[leaf.astype(_carrier(leaf.dtype), copy=False) for leaf in leaves] for leaves in cases]
            before = [[leaf.tobytes() for leaf in leaves] for leaves in carried]  # a CPU's arrays may share memory
            copied = [[leaf.copy() for leaf in leaves] for leaves in carried] if self.eager else carried
            placed = jax.device_put(copied, self.placement or self.device)
            with jax.default_device(self.device):
                outputs = jax.block_until_ready([self.compiled(*leaves) for leaves in placed])
            left = [[None if leaf.is_deleted() else leaf for leaf in leaves] for leaves in placed]
            results, after = jax.device_get((outputs, left))
        except Exception as error:
            raise running_failure(error, self.device) from error
        for was, became in zip(before, after, strict=True):
            for number, (one, other) in enumerate(zip(was, became, strict=True)):
                if other is not None and one != other.tobytes():
                    raise Failure(Verdict.INPUT_MODIFIED, InputModified(number))
        return [tuple(outputs) for outputs in results]


def compile_for(
    traced: Traced, device: Any, precision: Precision, *, interpret: bool, options: Mapping[str, Any] | None = None
) -> Jitted:
    """Compiles a kernel, or Pallas' interpreter of it, for a device, unless it is to be called eagerly."""
    if traced.eager:
        return Jitted(_carry(run_eagerly(traced.function, interpret=interpret), traced), device, precision, eager=True)
    place: jax.sharding.Sharding = jax.sharding.SingleDeviceSharding(device)
    if traced.sharded is not None and (traced.not_local or not interpret):
        if reason := mesh_problem(traced, device.platform):
            raise Failure(Verdict.UNAVAILABLE, reason)
        jaxpr, place = on_devices(traced.sharded, jax.devices(device.platform))
        traced = replace(traced, jaxpr=jaxpr)
    arguments = [jax.ShapeDtypeStruct(i.shape, _carrier(i.dtype), sharding=place) for i in traced.inputs]
    try:
        function = _carry(runnable(traced, interpret=interpret), traced)
        with keep_jax_frames(), interpret_directly():
            lowered = jax.jit(function, out_shardings=place).lower(*arguments)
        compiled = lowered.compile(compiler_options=dict(options) if options else None)
        return Jitted(compiled, device, precision, placement=place)
    except Failure:
        raise
    except Exception as error:
        if traced.in_triton and (limit := jax_triton_limit(error)):
            raise Failure(Verdict.UNAVAILABLE, limit) from None  # not kerneltest's fault, though it called jax_triton
        raise (interpreting_failure(error) if interpret else compile_failure(error)) from error


def mesh_problem(traced: Traced, platform: str) -> str:
    """Returns why the mesh of a kernel under `jax.shard_map` does not fit this machine, or ""."""
    if traced.sharded is None:
        return ""
    needed = mesh_size(traced.sharded)
    if needed <= (found := len(jax.devices(platform))):
        return ""
    more = f"; XLA_FLAGS=--xla_force_host_platform_device_count={needed} makes as many" if platform == "cpu" else ""
    return f"the kernel's mesh has {needed} devices, and JAX finds {found} of {platform} here{more}"


# Returns the dtype in which a leaf is placed: JAX before 0.12 mixes up two layouts of packed arrays.
def _carrier(dtype: DType) -> DType:
    if not is_packed(dtype):
        return dtype
    return np.dtype(np.float32 if is_float(dtype) else np.int8)


def _carry(function: Callable[..., Any], traced: Traced) -> Callable[..., Any]:
    if not any(is_packed(leaf.dtype) for leaf in traced.inputs):
        return function
    return lambda *leaves: function(*(x.astype(i.dtype) for x, i in zip(leaves, traced.inputs, strict=True)))


def running_failure(error: Exception, device: Any) -> Failure:
    """Returns the failure for an exception that a kernel raised on a device. Only the errors of GPUs can be sticky."""
    said = exception_text(error)
    verdict = next((v for v, words in _RUNNING.items() if re.search(words, said.lower())), Verdict.RUNTIME_ERROR)
    if poisons_device(said) and getattr(device, "platform", "") != "cpu":
        return Failure(verdict, DeviceLost(type(error).__name__, said))
    return Failure(verdict, Raised("the kernel", type(error).__name__, said))


def poisons_device(said: str) -> bool:
    """Checks whether a driver's error makes every further call in the process fail."""
    return bool(_STICKY.search(said))


def compile_failure(error: Exception) -> Failure:
    """Returns the failure for an exception of a compilation, with the user's line."""
    return describe_compile_failure(type(error).__name__, exception_text(error), processed_line(error).strip(" ()"))


def describe_compile_failure(name: str, said: str, source: str) -> Failure:
    """Returns the failure for an exception of a compilation."""
    verdict = next((v for v, words in _COMPILING.items() if re.search(words, said.lower())), Verdict.COMPILE_ERROR)
    if poisons_device(said):
        return Failure(verdict, DeviceLost(name, said))
    if verdict is Verdict.RESOURCE_EXCEEDED:
        words = f"{name}: {said}"
        return Failure(verdict, ResourceExceeded(Stage.COMPILE, "", "memory", None, None, "B", words, source=source))
    return Failure(verdict, NotBuilt(Stage.COMPILE, "", name, said, source=source))


def interpreting_failure(error: Exception, *, checks: bool = False) -> Failure:
    """Returns the failure for an interpreter's exception before a kernel ran; some are the kernel's if it `checks`."""
    if not is_jax_limitation(error, checks=checks):
        return compile_failure(error)
    return Failure(Verdict.UNAVAILABLE, describe_limitation(error, "cannot interpret this"))


# The fast path of JAX's interpreters: kernels evaluated in NumPy instead of code that XLA compiles.
#
# An evaluation is compared with JAX's own interpreter, bit for bit, on the first case of each signature with equations
# of a new kind, and with compiled code once for a pairing and dtype, within the oracle's bounds.


class NumpyExecutable(Executable, Protocol):
    """A kernel evaluated in NumPy."""

    @property
    def kinds(self) -> frozenset[Hashable]:
        """The kinds of the kernel's equations, as `equation_kinds` returns them; none if JAX's interpreter runs."""

    def run_jax_interpreter(self, leaves: Sequence[Array]) -> Outputs:
        """Returns the outputs of JAX's own interpreter, with its operations in NumPy as well."""


class NumpyPath:
    """Evaluations of the kernels of one pairing in one dtype."""

    def __init__(
        self,
        evaluate: Callable[[Traced], NumpyExecutable | None],  # None, or an exception, if a kernel needs a compiler
        compiled: Callable[[Traced], Executable],
        count: Callable[[], None],  # called for each evaluation that is prepared
    ) -> None:
        self._evaluate, self._compiled, self._count = evaluate, compiled, count
        self._evaluations: dict[Traced, NumpyExecutable | None] = {}
        self._faithful: dict[Traced, bool] = {}
        self._known_kinds: set[Hashable] = set()  # of equations that were evaluated faithfully
        self._compares_all = False  # once an evaluation was not faithful
        self._agrees_with_compiled: bool | None = None  # not compared yet
        self._contradicted = False

    def covers(self, traced: Traced) -> bool:
        return self.prepare_unchecked(traced) is not None

    def prepare_checked(self, traced: Traced, inputs: Inputs, agree: Agree) -> NumpyExecutable | None:
        if self._agrees_with_compiled is False or (evaluation := self.prepare_unchecked(traced)) is None:
            return None
        if traced not in self._faithful:
            self._faithful[traced] = False  # stays so if the comparison raises
            leaves, kinds = inputs(), evaluation.kinds
            is_known = kinds <= self._known_kinds and not self._compares_all
            if kinds and not is_known:
                own, by_jax = evaluation.run(leaves), evaluation.run_jax_interpreter(leaves)
                if any(one.tobytes() != other.tobytes() for one, other in zip(own, by_jax, strict=True)):
                    self._compares_all = True
                    runs = (evaluation.run, own), (evaluation.run_jax_interpreter, by_jax)
                    raise ContradictedError("gives other bits than JAX's own interpreter does in NumPy", *runs)
            self._faithful[traced] = True
            self._known_kinds |= kinds
            if self._agrees_with_compiled is None:
                self._agrees_with_compiled = False
                compiled = self._compiled(traced)
                wanted, outputs = compiled.run(leaves), evaluation.run(leaves)
                self._agrees_with_compiled = agree(outputs, wanted, evaluation.precision)
                self._contradicted = not self._agrees_with_compiled
                if self._contradicted:
                    runs = (evaluation.run, outputs), (compiled.run, wanted)
                    raise ContradictedError("is not within the oracle's bounds of compiled code", *runs)
        return evaluation if self.is_trusted(traced) else None

    def is_trusted(self, traced: Traced) -> bool:
        return self._faithful.get(traced, False) and bool(self._agrees_with_compiled)

    def is_contradicted(self, traced: Traced) -> bool:
        return self._contradicted and self._faithful.get(traced, True)

    def prepare_unchecked(self, traced: Traced) -> NumpyExecutable | None:
        if traced not in self._evaluations:
            evaluation = self._evaluations[traced] = self._evaluate_or_none(traced)
            if evaluation is not None:
                self._count()
        return self._evaluations[traced]

    # Returns the evaluation of a kernel; None if it needs a compiler, which then reports any fault of it.
    def _evaluate_or_none(self, traced: Traced) -> NumpyExecutable | None:
        try:
            return self._evaluate(traced)
        except Exception as error:  # whatever it is, code that JAX compiles does not depend on it
            if isinstance(error, Failure) and error.verdict is Verdict.HANG:
                raise
            warn_of_recovery(error, "preparing to evaluate a kernel in NumPy", UnknownError)
            return None
