"""JAX's TPU interpreter: its parameters, its memory, in which writes are tracked, and what its failures mean."""

import ast
import io
import math
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as tpu
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory
from jax._src.pallas.mosaic.interpret.utils import to_range
from jax.experimental.pallas import tpu as pltpu

from kerneltest.core.details import (
    Access,
    Hung,
    MemoryFault,
    Race,
    Raised,
    Stated,
    UndefinedCause,
    UndefinedSource,
    Visit,
)
from kerneltest.core.dtypes import Array, DType
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.source_location import in_order, relative_path
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.interpreter_threads import (
    COPIES,
    EvaluateThread,
    Wait,
    exclusive_interpreter,
    grid_order,
    method_codes,
    supported_parameters,
)
from kerneltest.trace.jax_compat.jaxprs import Equation, Jaxpr, SourceInfo, Var, inner_jaxprs, parameter_names
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes
from kerneltest.trace.jax_compat.source_lines import (
    KernelFaultError,
    is_limit_text,
    is_of_jax,
    limitation_text,
    line_of,
    raised_in_jax,
    text_of,
)

# Names for a TPU kernel's memory: JAX's interpreter knows buffers and semaphores only by order of allocation.

MAIN_MEMORY = frozenset({"any", "hbm"})
"""Memory whose arrays are passed to the kernel whole."""

_ROWS, _LANES = 8, 128  # of a tile


@dataclass(frozen=True, slots=True)
class KernelBuffer:
    """Memory that exists when the kernel starts, by the name of the kernel's parameter."""

    name: str
    initial_shape: tuple[int, ...] | None = None  # of the array that it holds at the start; None if it holds nothing
    padded: bool = False  # whether it is the block of an input, which may reach past the end of its array


@dataclass(frozen=True, slots=True)
class EquationSite:
    """The user's line of an equation, the semaphore that it counts and the buffers that it allocates."""

    primitive: str
    line: str
    semaphore: str = ""
    allocates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """The memory of one call: its buffers and semaphores in order of allocation, and for each output its buffer."""

    line: str
    buffers: tuple[KernelBuffer, ...]
    outputs: tuple[int, ...]
    semaphores: tuple[str, ...]
    sites: Mapping[int, EquationSite]  # the kernel's equations, by the id of their `source_info`


def layout_of(equation: Equation) -> MemoryLayout:
    """The memory of a Pallas call."""
    params = equation.params
    jaxpr = params["jaxpr"] if "jaxpr" in params else params["jaxprs"][0]
    mapping = params.get("grid_mapping")
    scalars = mapping.num_index_operands if mapping is not None else 0
    inputs = mapping.num_inputs if mapping is not None else len(equation.invars)
    aliased = {output: operand - scalars for operand, output in dict(params["input_output_aliases"]).items()}
    refs, names = jaxpr.invars, _names(jaxpr)
    ends = scalars + inputs, scalars + inputs + len(equation.outvars)

    arrays = [tuple(v.aval.shape) for v in equation.invars][len(equation.invars) - inputs :]
    buffers = [KernelBuffer(names[scalars + i], shape) for i, shape in enumerate(arrays)]
    outputs = []
    for i, name in enumerate(names[slice(*ends)]):
        outputs.append(aliased.get(i, len(buffers)))
        if i not in aliased:
            buffers.append(KernelBuffer(name))
    buffers += [KernelBuffer(name, tuple(ref.aval.shape)) for name, ref in zip(names[:scalars], refs, strict=False)]
    semaphores: list[str] = []
    for i, (name, ref) in enumerate(zip(names[scalars:], refs[scalars:], strict=True)):
        if _is_semaphore(ref):
            places = (", ".join(map(str, at)) for at in np.ndindex(*ref.aval.shape))
            semaphores += [f"{name}[{at}]" if at else name for at in places]
        elif i + scalars >= ends[1] or str(ref.aval.memory_space).lower() not in MAIN_MEMORY:
            buffers.append(KernelBuffer(name, padded=i < inputs))
    line = line_of(equation.source_info)
    sites = dict(_sites(jaxpr, dict(zip(refs, names, strict=True)), line))
    return MemoryLayout(line, tuple(buffers), tuple(outputs), tuple(semaphores), sites)


def padded_shape(shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, ...]:
    """The shape of an array in a TPU's main memory, which holds whole tiles (`infer_tiling` of `tpu_info`, from v4).

    A tile has 8 rows of 128 elements, or fewer rows for an array with few of them: at least as many as 32 bits hold
    elements. An array of one axis has tiles of 128 times as many.
    """
    if not shape or dtype.itemsize > 4:
        return shape
    packing = 4 // dtype.itemsize
    if len(shape) == 1:
        return (_round_up(shape[0], packing * _LANES),)
    rows = packing
    while rows < min(shape[-2], _ROWS):
        rows *= 2
    return (*shape[:-2], _round_up(shape[-2], rows), _round_up(shape[-1], _LANES))


def _round_up(length: int, multiple: int) -> int:
    return -(-length // multiple) * multiple


def overhanging_alias(equation: Equation) -> str:
    """The name of an output that takes an input's memory and ends within a block, or "".

    JAX's interpreter gives such an output the shape of whole blocks, and XLA then refuses the call.
    """
    mapping = equation.params.get("grid_mapping")
    if mapping is None:
        return ""
    names: list[str] = _names(equation.params["jaxpr"])[mapping.num_index_operands :]
    for output in dict(equation.params["input_output_aliases"]).values():
        number = mapping.num_inputs + output
        block = mapping.block_mappings[number]
        sizes = [getattr(length, "block_size", 1) for length in block.block_shape]
        if any(length % size for length, size in zip(block.array_aval.shape, sizes, strict=True)):
            return names[int(number)]
    return ""


def _names(jaxpr: Jaxpr) -> list[str]:
    return [name or f"argument {i}" for i, name in enumerate(parameter_names(jaxpr))]


def _is_semaphore(ref: Var) -> bool:
    return "semaphore" in str(getattr(ref.aval, "memory_space", ""))


# For each primitive that counts a semaphore, its place among the operands in their tree.
_COUNTED = {"dma_start": 2, "dma_wait": 2, "semaphore_signal": 0, "semaphore_wait": 0}


# The sites of a jaxpr, in which some variables have names and which is called from the line `outer`.
def _sites(jaxpr: Jaxpr, names: Mapping[Var, str], outer: str) -> Iterator[tuple[int, EquationSite]]:
    for equation in jaxpr.eqns:
        primitive = str(equation.primitive.name)
        site = EquationSite(primitive, line_of(equation.source_info) or outer)
        if primitive in _COUNTED:
            tree = equation.params.get("tree", equation.params.get("args_tree"))
            ref = tree.unflatten(equation.invars)[_COUNTED[primitive]]
            site = replace(site, semaphore=names.get(getattr(ref, "ref", ref), ""))
        for inner in inner_jaxprs(equation):
            inside = _inner_names(primitive, equation, inner, names)
            if primitive == "run_scoped" and not is_of_jax(inner):
                own = dict(zip(inner.invars, _names(inner), strict=True))
                inside.update(own)
                site = replace(site, allocates=tuple(n for v, n in own.items() if not _is_semaphore(v)))
            yield from _sites(inner, inside, site.line)
        yield id(equation.source_info), site


# Names for the inputs of a nested jaxpr. A branch's or a loop body's operands are the last of the equation's.
def _inner_names(primitive: str, equation: Equation, inner: Jaxpr, names: Mapping[Var, str]) -> dict[Var, str]:
    if primitive == "run_scoped":
        pairs = zip(inner.constvars, equation.invars, strict=False)
    else:
        pairs = zip(reversed(inner.invars), reversed(equation.invars), strict=False)
    return {new: names[old] for new, old in pairs if not hasattr(old, "val") and old in names}


BufferKey: TypeAlias = tuple[Any, ...]  # memory space, number, device and core
IndexRanges: TypeAlias = tuple[slice | int, ...]  # the indices of an access along each axis
ThreadKey: TypeAlias = Any  # a core, by its number

# From a dtype to the content of memory that was never written.
ChooseFill = Callable[[DType], Any]

PIPELINE_CODE = "the pipeline's own code"
"""The place of an access that does not come from a line of the user's."""

_FIRST_BUFFER, _FIRST_SEMAPHORE = 100, 2000  # JAX's numbers for the first allocations


class MisuseError(KernelFaultError):
    """An access to memory that does not exist."""

    def __init__(self, verdict: Verdict, detail: MemoryFault | Race) -> None:
        super().__init__(detail.text())
        self.verdict = verdict
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Leftover:
    """A semaphore that is not back in its initial state when a kernel ends."""

    name: str
    count: int
    copies: tuple[tuple[Callable[[], None], str], ...]  # that nothing waited for: what carries each out, and its line


class TrackedSharedMemory(tpu_memory.SharedMemory):
    """Memory that knows the names of its buffers, which of their elements were written, and who read the others."""

    mem: Any  # JAX declares allocations of any kind, of which these are buffers

    def track(self, layout: MemoryLayout, fill: ChooseFill | None) -> None:
        """Sets the layout of the allocations, and the content of unwritten memory (None for JAX's own)."""
        self.first: Exception | None = None  # which ended the run
        self.reads: dict[UndefinedSource, None] = {}
        self.over = False  # whether the kernel has ended
        self.layout, self._fill = layout, fill
        self._written: dict[BufferKey, Array] = {}  # masks for buffers that are not fully written
        self._moving: dict[ThreadKey | int | None, Array] = {}  # masks for what the grid's loop and copies move
        self._scoped: dict[BufferKey, str] = {}  # names of the buffers that run_scoped allocates
        self._allocations: dict[tuple[int, BufferKey], int] = {}  # by the id of an equation's source, and core
        self.copies: dict[int, tuple[int, SourceInfo]] = {}  # by JAX's number: the core that started it, and its source
        self._clocks_given = 0
        self._tracking = threading.Lock()
        self.running = threading.local()  # the copy that a thread carries out

    def name(self, key: BufferKey) -> str:
        number = key[1] - _FIRST_BUFFER
        buffers = self.layout.buffers
        return buffers[number].name if number < len(buffers) else self._scoped.get(key, f"{key[0]} {key[1]}")

    def name_of_semaphore(self, number: int) -> str:
        """The kernel's name for a semaphore that exists when it starts; "" for another."""
        names, index = self.layout.semaphores, number - _FIRST_SEMAPHORE
        return names[index] if 0 <= index < len(names) else ""

    def lines(self, semaphore: str, primitives: Sequence[str]) -> list[str]:
        """The lines at which some primitives are called on a semaphore."""
        array = semaphore.partition("[")[0]
        sites = (site for site in self.layout.sites.values() if site.semaphore == array)
        return list(dict.fromkeys(site.line for site in sites if site.primitive in primitives))

    def line(self, source: SourceInfo) -> str:
        """`FILE:LINE` of an equation, from its `source_info`; `PIPELINE_CODE` without one."""
        site = self.layout.sites.get(id(source))
        return (site.line if site is not None else line_of(source)) or PIPELINE_CODE

    def unwritten_mask(self, output: int) -> Array | None:
        """Mask of the elements of an output, up to whole blocks, that were never written; None if all were."""
        number = self.layout.outputs[output]
        return next((~w for key, w in self._written.items() if key[1] - _FIRST_BUFFER == number), None)

    def leftovers(self) -> Iterator[Leftover]:
        for number, semaphore in [*self.sem.items(), *self.fixed_id_sem.items()]:
            late: list[list[Any]] = list(semaphore.tasks)
            for core, tasks in enumerate(late):
                sources = [task.__self__.source_info for task in tasks]  # of a DMA
                sites = [self.layout.sites[id(s)] for s in sources if id(s) in self.layout.sites]
                name = self.name_of_semaphore(number) or next((site.semaphore for site in sites), "")
                copies = tuple((task, self.line(source)) for task, source in zip(tasks, sources, strict=True))
                if copies or semaphore.count_by_core[core]:
                    yield Leftover(name, int(semaphore.count_by_core[core]), copies)

    @property
    def _copy(self) -> int | None:
        return getattr(self.running, "copy", None)

    def get_random_virtual_device_id(self) -> int:
        """Gives each copy a clock of its own, in turn: two copies that share one would seem to be ordered."""
        with self._tracking:
            self._clocks_given += 1
        return int(self.num_cores + self._clocks_given % (self.vector_clock_size - self.num_cores))

    def append_semaphore_task(self, semaphore_id: int, global_core_id: int, task: Any) -> None:
        copy = task.__self__
        if _is_empty(to_range(copy.src_transforms)):
            return  # or it would be left over: a wait for 0 bytes does not run it
        self.copies[copy.id] = copy.src_local_core_id, copy.source_info
        super().append_semaphore_task(semaphore_id, global_core_id, task)

    def set_failed(self, exception: Exception, *args: Any, **kwargs: Any) -> None:
        self.first = self.first or exception
        super().set_failed(exception, *args, **kwargs)

    def allocate_buffer(self, key: BufferKey, ref_count: int, value: Array, *args: Any, **kwargs: Any) -> None:
        number, buffers = key[1] - _FIRST_BUFFER, self.layout.buffers
        given = buffers[number].initial_shape if number < len(buffers) else None
        if key[0] in MAIN_MEMORY:  # a TPU stores arrays in whole tiles, and copies of whole tiles reach past their ends
            kwargs = {**kwargs, "logical_shape": value.shape}
            whole = np.zeros(padded_shape(value.shape, value.dtype), value.dtype)
            whole[tuple(map(slice, value.shape))] = value
            value = whole
        written = np.zeros(value.shape, bool)
        if given is not None:
            written[tuple(map(slice, given))] = True
        with self._tracking:
            if key not in self.mem and not written.all():  # otherwise another core has allocated it
                self._written[key] = written
            if number >= len(buffers):
                self._scoped[key] = self._name_scoped(key, _source(kwargs))
        if self._fill is not None:
            value = np.where(written, value, self._fill(value.dtype)).astype(value.dtype)
        super().allocate_buffer(key, ref_count, value, *args, **kwargs)

    def _name_scoped(self, key: BufferKey, source: SourceInfo) -> str:
        site = self.layout.sites.get(id(source))
        names = site.allocates if site is not None else ()
        allocator = (id(source), key[2:])
        count = self._allocations[allocator] = self._allocations.get(allocator, -1) + 1
        return names[count % len(names)] if names else f"the {key[0]} memory of {self.line(source)}"

    def get_buffer_content(  # type: ignore[override]
        self, key: BufferKey, rnge: IndexRanges, thread: ThreadKey, *args: Any, **kwargs: Any
    ) -> Any:
        source, rnge = _source(kwargs), _at_start(rnge)
        self._check(Access.LOAD, key, rnge, source)
        result = super().get_buffer_content(key, rnge, thread, *args, **kwargs)
        part = self._written[key][self._whole(key, rnge)] if result[0] is not None and key in self._written else None
        if source is None:
            self._moving.pop(thread, None)
        if part is not None and not part.all():
            if source is None:
                self._moving[thread] = part
            elif self._copy is not None and self._within_array(key, rnge).all():
                self._moving[self._copy] = part
            else:
                self.reads.setdefault(self._describe_read(key, source))
        return result

    def _whole(self, key: BufferKey, rnge: IndexRanges) -> IndexRanges:
        return (*rnge, *map(slice, self.mem[key].logical_shape[len(rnge) :]))

    # Returns which elements of an access were written, except those past the array's end.
    def _within_array(self, key: BufferKey, rnge: IndexRanges) -> Array:
        known = self._written[key].copy()
        inside = np.zeros(known.shape, bool)
        inside[tuple(map(slice, self.mem[key].logical_shape))] = True
        return np.asarray((known | ~inside)[self._whole(key, rnge)])

    def _describe_read(self, key: BufferKey, source: SourceInfo) -> UndefinedSource:
        number, buffers = key[1] - _FIRST_BUFFER, self.layout.buffers
        past_end = number < len(buffers) and (buffers[number].padded or buffers[number].initial_shape is not None)
        cause = UndefinedCause.PAST_END if past_end else UndefinedCause.PARTLY_WRITTEN
        return UndefinedSource(cause, place_of(self.line(source)), self.name(key))

    def store_buffer_content(  # type: ignore[override]
        self, key: BufferKey, rnge: IndexRanges, value: Array, thread: ThreadKey, *args: Any, **kwargs: Any
    ) -> Any:
        source = _source(kwargs)
        self._check(Access.STORE, key, rnge, source)
        result = super().store_buffer_content(key, rnge, value, thread, *args, **kwargs)
        moved = self._moving.pop(thread if source is None else self._copy, None)
        if result[0]:
            self._mark_written(key, rnge, True if moved is None else moved)
        return result

    def swap_buffer_content(
        self, key: BufferKey, rnge: IndexRanges, value: Array, mask: Array | None, *args: Any, **kwargs: Any
    ) -> Any:
        rnge = _at_start(rnge)
        if mask is None:
            self._check(Access.STORE, key, rnge, _source(kwargs))
        result = super().swap_buffer_content(key, rnge, value, mask, *args, **kwargs)
        if result[0] is None:
            raise self._outside(Access.STORE, key, rnge, _source(kwargs), masked=True)
        if key in self._written and mask is not None:
            inside = tuple(map(slice, self._written[key][rnge].shape))
            self._mark_written(key, rnge, self._written[key][rnge] | mask[inside])
        elif mask is None:
            self._mark_written(key, rnge, True)
        return result

    def _mark_written(self, key: BufferKey, rnge: IndexRanges, written: Array | bool) -> None:
        with self._tracking:
            if key not in self._written and written is True:
                return
            whole = self._written.setdefault(key, np.ones(self.mem[key].content.shape, bool))
            whole[self._whole(key, rnge)] = written
            if whole.all():
                del self._written[key]

    def _check(self, access: Access, key: BufferKey, rnge: IndexRanges, source: SourceInfo | None) -> None:
        if source is None:  # a block of the grid's, for which JAX's own message says more
            return
        if key not in self.mem:
            name, line = self.name(key), self.line(source)
            words = f"{name} is {_VERBS[access]} by the copy of {line} after its scope has ended"
            raise MisuseError(Verdict.RACE, Race("", name, "", (Visit(Access.COPY, place=place_of(line)),), words))
        buffer = self.mem[key]
        lengths = buffer.logical_shape if self._copy is None else buffer.content.shape
        if not all(_within(index, length) for index, length in zip(rnge, lengths, strict=False)):
            raise self._outside(access, key, rnge, source)

    def _outside(
        self, access: Access, key: BufferKey, rnge: IndexRanges, source: SourceInfo | None, *, masked: bool = False
    ) -> MisuseError:
        indices = (f"{i.start or 0}:{i.stop}" if isinstance(i, slice) else str(i) for i in rnge)
        name, line, element = self.name(key), self.line(source), f"[{', '.join(indices)}]"
        shape, masking = tuple(self.mem[key].logical_shape), " under its mask" if masked else ""
        words = f"{name}{element} is {_VERBS[access]}{masking} at {line}, outside its shape {shape}"
        detail = MemoryFault("", Visit(access, place=place_of(line)), name, element, words)
        return MisuseError(Verdict.OUT_OF_BOUNDS, detail)


_VERBS = {Access.LOAD: "read", Access.STORE: "written"}


def place_of(line: str) -> str:
    """FILE:LINE of a line that messages show, or "" for `PIPELINE_CODE`."""
    return "" if line == PIPELINE_CODE else line


def _is_empty(rnge: IndexRanges) -> bool:
    slices = [index for index in rnge if isinstance(index, slice)]
    return any(index.stop is not None and index.stop <= (index.start or 0) for index in slices)


# Moves an access to no elements to the start of its buffer: JAX's interpreter refuses one that begins at the end.
def _at_start(rnge: IndexRanges) -> IndexRanges:
    return tuple(slice(0, 0, 1) if _is_empty((index,)) else index for index in rnge)


def _within(index: slice | int, length: int) -> bool:
    if not isinstance(index, slice):
        return 0 <= int(index) < length
    start, stop, step = index.start or 0, length if index.stop is None else index.stop, index.step or 1
    last = start + (stop - start - 1) // step * step
    return bool(start >= 0 and (stop <= start or last < length))


def _source(kwargs: Mapping[str, Any]) -> SourceInfo | None:
    return getattr(kwargs.get("logging_info"), "source_info", None)


# Failures of TPU kernels, from what JAX's interpreter prints and raises, and from the semaphores at the end.

_FIRST_COPY = 100  # JAX numbers devices from 0, and copies from here

# JAX's text.
_ACCESS = re.compile(
    r"^ *(read|write) of (\('\w+', \d+, \d+, \d+\))\[(.*?)\] from \(?(\d+), (\d+)\)?,? (.*)$", re.MULTILINE
)
_FRAME = re.compile(r"(.+?):(\d+)(?::\d+)? \(")
_BLOCK = in_order(
    r".*?Out-of-bounds block index \(",
    r"(.*?),?\) for ",
    r'\w+ "(.*?)" in iteration ',
    r"(\(.*?\)) ",
    r".*?ing \[\(?",
    r"(.*?)\)?\] but \w+ has shape ",
    r"(\(.*?\))",
)
_REVISITED = in_order(
    r".*?Revisited block \(?",
    r"(.*?)\)? of output (\d+) in iteration ",
    r"(\(.*?\))\. ",
    r".*? iterations ",
    r"(\(.*?\)) ",
)
_OUTSIDE = re.compile(r"^Out-of-bounds|^Range [^\n]*? out of bounds for (?:allocation )?shape ")
_INDEX = re.compile(r"slice\((-?\d+), (-?\d+), \w+\)|(-?\d+)")


def failure(error: Exception, deadlock: Hung | None, memory: TrackedSharedMemory | None) -> Failure:
    """The failure that ended a run, from the interpreter's exception, a deadlock, and its memory if that was made."""
    if deadlock is not None:
        return Failure(Verdict.HANG, deadlock)
    cause = (memory.first if memory is not None else None) or error
    if isinstance(cause, MisuseError):
        return Failure(cause.verdict, cause.detail)
    text, name = exception_text(cause), type(cause).__name__
    if (found := _checked(text, memory)) is not None:
        return found
    if is_limit_text(name, text) or raised_in_jax(cause):
        said = text_of(cause) + (f" ({memory.layout.line})" if memory is not None else "")
        return Failure(Verdict.UNAVAILABLE, limitation_text("cannot interpret this", name, said))
    return Failure(Verdict.RUNTIME_ERROR, Raised("the interpreter", name, text))


# The failure that a check of the interpreter's found, from its text; None for any other exception.
def _checked(text: str, memory: TrackedSharedMemory | None) -> Failure | None:
    if memory is not None:
        if "RACE DETECTED" in text:
            return Failure(Verdict.RACE, race(text, memory))
        if (block := _BLOCK.search(text)) is not None:
            return Failure(Verdict.OUT_OF_BOUNDS, _block_outside(block, memory))
        if (again := _REVISITED.search(text)) is not None:
            return Failure(Verdict.RUNTIME_ERROR, _revisited_block(again, memory))
    if _OUTSIDE.search(text):  # NumPy's own IndexError has other words: it may be due to JAX
        return Failure(Verdict.OUT_OF_BOUNDS, MemoryFault("", Visit(Access.LOAD), "", "", text))
    return None


def _block_outside(found: re.Match[str], memory: TrackedSharedMemory) -> MemoryFault:
    index, buffer, iteration, block, shape = found.groups()
    element, line = f"[{_indices(block)}]", memory.layout.line
    place = f"in iteration {iteration} of the call at {line}"
    words = f"block ({index}) of {buffer}, {element}, is outside its shape {shape} {place}"
    return MemoryFault("", Visit(Access.BLOCK, ast.literal_eval(iteration), line), buffer, element, words)


def _revisited_block(found: re.Match[str], memory: TrackedSharedMemory) -> Stated:
    block, output, iteration, earlier = found.groups()
    values = {
        "iteration": iteration,
        "line": memory.layout.line,
        "block": f"[{_indices(block)}]",
        "output": memory.layout.buffers[memory.layout.outputs[int(output)]].name,
        "earlier": earlier,
    }
    return Stated(
        "iteration {iteration} of the call at {line} comes back to block {block} of {output}, which it had from "
        "iteration {earlier}: a TPU keeps a block only while consecutive iterations use it, so make the innermost "
        "dimensions those that share a block",
        values,
        values["line"],
    )


def _unfinished_copy(semaphore: Leftover, line: str) -> Failure:
    waited = semaphore.name or "its semaphore"
    words = f"the copy started at {line} is still in flight when the kernel ends: nothing waits for {waited}"
    return Failure(Verdict.RACE, Race("", semaphore.name, "", (Visit(Access.COPY, place=place_of(line)),), words))


def _nonzero_semaphore(semaphore: Leftover, memory: TrackedSharedMemory) -> Failure:
    values: dict[str, int | str] = {"semaphore": semaphore.name or "a semaphore", "count": semaphore.count}
    sentence = "{semaphore} is at {count} when the kernel ends, but a TPU requires 0"
    if not semaphore.name:
        return Failure(Verdict.RUNTIME_ERROR, Stated(sentence, values))
    signals = memory.lines(semaphore.name, ("semaphore_signal", "dma_start"))
    waits = memory.lines(semaphore.name, ("semaphore_wait", "dma_wait"))
    places = {
        "signals": f"signalled at {', '.join(signals)}" if signals else "never signalled",
        "waits": f"waited for at {', '.join(waits)}" if waits else "never waited for",
    }
    line = next(iter([*signals, *waits]), "")
    detail = Stated(f"{sentence}: it is {{signals}} and {{waits}}", {**values, **places}, line)
    return Failure(Verdict.RUNTIME_ERROR, detail)


class _RacingAccess(NamedTuple):
    verb: str
    buffer: str
    indices: str
    core: int
    words: str
    visit: Visit
    is_copy: bool


def race(text: str, memory: TrackedSharedMemory) -> Race:
    """The first race that JAX reports in `text`."""
    found = [_access(match, memory) for match in _ACCESS.findall(text[text.index("RACE DETECTED") :])[:2]]
    if len(found) < 2:
        return Race("", "", "", (), "two accesses with no ordering between them")
    one, other = sorted(found, key=lambda access: access.is_copy)
    visits = one.visit, other.visit
    target, other_target = one.buffer + one.indices, other.buffer + other.indices
    if memory.over and one.visit.access is Access.BLOCK and other.is_copy:
        words = (
            f"{other_target} is {other.verb} by {other.words}, still in flight when the kernel ends: nothing waits for "
            "that copy"
        )
        return Race("", other.buffer, other.indices, visits[::-1], words)
    if memory.over and other.is_copy:
        advice = "nothing waits for that copy"
    elif one.core == other.core:
        advice = "wait for the copy in between"
    else:
        advice = "have each core write its own part, or do not declare the dimension parallel"
    again = "" if target == other_target else f"{other_target} "
    words = (
        f"{target} is {one.verb} by {one.words}, and {again}is {other.verb} by {other.words}, with no ordering "
        f"between them: {advice}"
    )
    return Race("", one.buffer, one.indices, visits, words)


def _access(match: tuple[str, ...], memory: TrackedSharedMemory) -> _RacingAccess:
    what, key, extent, device, core, at = match
    frame = _FRAME.match(at)
    line = f"{relative_path(frame[1])}:{frame[2]}" if frame else ""
    verb, kind = ("read", Access.LOAD) if what == "read" else ("written", Access.STORE)
    words = f"core {core} at {line or PIPELINE_CODE}"
    if at.startswith("pallas_call"):
        kind, line = Access.BLOCK, memory.layout.line
        words = f"core {core} as a block of the call at {line}"
    if int(device) >= _FIRST_COPY:
        starter, source = memory.copies[int(device)]
        kind, line, core = Access.COPY, memory.line(source), str(starter)
        words = f"the copy that core {starter} started at {line}"
    indices = f"[{_indices(extent)}]" if extent.strip("()") else ""
    visit, buffer = Visit(kind, place=place_of(line), thread=f"core {core}"), memory.name(ast.literal_eval(key))
    return _RacingAccess(verb, buffer, indices, int(core), words, visit, kind is Access.COPY)


# Indices as Python writes them, from JAX's text of slices and numbers.
def _indices(extent: str) -> str:
    return ", ".join(f"{i[0]}:{i[1]}" if i[0] else i[2] for i in _INDEX.findall(extent))


def describe_wait(variables: Mapping[str, Any]) -> Wait:
    """A core's wait for a semaphore, from the local variables of `Semaphore.wait`."""
    semaphore, source = variables["self"], getattr(variables.get("logging_info"), "source_info", None)
    memory: TrackedSharedMemory = semaphore.shared_memory
    name = memory.name_of_semaphore(semaphore.id)
    lines: Sequence[str] = (
        [memory.line(source)] if source is not None else memory.lines(name, ("semaphore_wait",)) if name else []
    )
    place = f" at {' or '.join(lines)}" if name and lines else ""
    core = int(variables["global_core_id"])
    awaited = f"{name or f'semaphore {semaphore.id}'} to reach {variables['value']}"
    words = f"core {core} waits{place} for {awaited}, but it is at {int(semaphore.count_by_core[core])}"
    return Wait(words, next(filter(None, map(place_of, lines)), ""))


_PARAMETERS = supported_parameters(pltpu.InterpretParams, detect_races=True, on_race="raise", vector_clock_size=COPIES)
_jax_wait = tpu_memory.Semaphore.wait
_WAITS = method_codes(tpu_memory.Semaphore, "wait")
_CORES = 2
_SEEDS = range(8)


def interpret_parameters(equation: Equation) -> dict[str, Any]:
    """The parameters with which a call is interpreted.

    A call that declares parallel dimensions runs on two cores, its programs shuffled. The interpreter does not know
    the dimensions that vmap adds, and takes parallel dimensions only before all others: those after one that is not
    parallel run in order.
    """
    compiler, mapping = equation.params.get("compiler_params"), equation.params.get("grid_mapping")
    declared = getattr(compiler, "dimension_semantics", None)
    if declared is None or mapping is None:
        return {"interpret": _PARAMETERS}
    own = iter(declared)
    whole = ["arbitrary" if i in mapping.vmapped_dims else next(own, "arbitrary") for i in range(len(mapping.grid))]
    count = next((i for i, each in enumerate(whole) if each not in ("parallel", pltpu.PARALLEL)), len(whole))
    leading = ("parallel",) * count + ("arbitrary",) * (len(whole) - count)
    compiler = replace(compiler, dimension_semantics=leading)
    lengths = mapping.grid[:count]
    if not all(isinstance(n, int) for n in lengths) or math.prod(lengths) < _CORES:
        return {"interpret": _PARAMETERS, "compiler_params": compiler}
    seed = _seed(lengths, mapping.grid, compiler)
    shuffled = replace(_PARAMETERS, num_cores_or_threads=_CORES, random_seed=seed)
    return {"interpret": shuffled, "compiler_params": compiler}


# The first seed that leaves the fewest parallel dimensions in order.
def _seed(lengths: Sequence[int], grid: Sequence[int], compiler: Any) -> int:
    def in_order(seed: int) -> int:
        drawn = grid_order(tuple(grid), compiler, seed)
        return sum(np.array_equal(order, range(n)) for order, n in zip(drawn, lengths, strict=False) if n > 1)

    return min(_SEEDS, key=in_order)


def run(
    call: Callable[..., Any],
    layout: MemoryLayout,
    operands: Sequence[Any],
    fill: ChooseFill | None,
    evaluate: EvaluateThread | None = None,
) -> tuple[list[Array], list[Array | None], tuple[UndefinedSource, ...]]:
    """Runs one interpreted call; a Failure says the fault. Unwritten memory holds `fill`, or NaN and large integers.

    Returns the outputs, a mask of the elements of each that were never written, and the reads of such memory.
    """
    reset = tpu.reset_tpu_interpret_mode_state
    with (
        exclusive_interpreter(_WAITS, describe_wait, evaluate, reset) as (detector, printed),
        _tracked_memory(layout, fill) as made,
    ):
        try:
            outputs = [np.asarray(output) for output in call(*operands)]
            (memory,) = made
            _raise_races(printed, memory)
            _finish(memory, printed)
        except Failure:
            raise
        except Exception as error:
            cause = None if isinstance(error, KernelFaultError) else error
            raise failure(error, detector.deadlock, made[0] if made else None) from cause
    masks = (memory.unwritten_mask(number) for number in range(len(outputs)))
    inside = (m if m is None else m[tuple(map(slice, o.shape))] for m, o in zip(masks, outputs, strict=True))
    return outputs, [m if m is not None and m.any() else None for m in inside], tuple(memory.reads)


@contextmanager
def _tracked_memory(layout: MemoryLayout, fill: ChooseFill | None) -> Iterator[list[TrackedSharedMemory]]:
    made: list[TrackedSharedMemory] = []

    def make(**kwargs: Any) -> TrackedSharedMemory:
        made.append(TrackedSharedMemory(**kwargs))
        made[-1].track(layout, fill)
        return made[-1]

    def carried_out(execute: Callable[[Any], None]) -> Callable[[Any], None]:
        def execute_copy(copy: Any) -> None:
            running = made[-1].running
            running.copy = copy.id  # to which this thread's accesses belong
            try:
                execute(copy)
            finally:
                running.copy = None

        return execute_copy

    # A copy of no elements signals nothing, and JAX's own wait for 0 bytes asserts that there was a signal.
    def wait(semaphore: Any, value: Any, *args: Any, **kwargs: Any) -> None:
        if value:
            _jax_wait(semaphore, value, *args, **kwargs)

    waits = Replacement(tpu_memory.Semaphore, "wait", wait)
    parts = (Replacement(tpu.DMA, name, carried_out(vars(tpu.DMA)[name])) for name in ("execute_read", "execute_write"))
    with replace_attributes(Replacement(tpu_memory, "SharedMemory", make), waits, *parts):
        yield made


# Carries out the copies that nothing waited for, and checks the semaphores. The interpreter runs a copy when it is
# waited for, so one without a wait never runs, whereas a TPU runs it concurrently with everything after it. Running it
# at the end exposes the accesses that it races with.
def _finish(memory: TrackedSharedMemory, printed: io.StringIO) -> None:
    left = list(memory.leftovers())
    memory.over = True
    tpu._shared_memory = memory  # JAX has dropped it; `exclusive_interpreter` resets it
    for semaphore in left:
        for carry_out, _ in semaphore.copies:
            carry_out()
    _raise_races(printed, memory)
    for semaphore in left:
        for _, line in semaphore.copies:
            raise _unfinished_copy(semaphore, line)
    for semaphore in left:
        raise _nonzero_semaphore(semaphore, memory)


# Raises a Failure for a race that JAX before 0.12 has printed before going on.
def _raise_races(printed: io.StringIO, memory: TrackedSharedMemory) -> None:
    if tpu.races is not None and tpu.races.races_found:
        raise Failure(Verdict.RACE, race(printed.getvalue(), memory))
