"""The memory of JAX's TPU interpreter, which also notes what was never written and what is left at the end."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax._src.pallas.mosaic.interpret import shared_memory as tpu_memory

from kerneltest.core.details import UndefinedCause, UndefinedSource
from kerneltest.core.dtypes import Array
from kerneltest.core.verdicts import Verdict
from kerneltest.trace.jax_compat.names import line_of
from kerneltest.trace.jax_compat.tpu_layout import Layout

# From a dtype to what stands where nobody wrote.
Fill = Callable[[np.dtype[Any]], Any]

_FIRST_BUFFER, _FIRST_SEMAPHORE = 100, 2000  # JAX's numbers of what is allocated first


class MisuseError(Exception):
    """An access to what is not there, in words."""

    def __init__(self, verdict: Verdict, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a semaphore still knows of at a kernel's end.

    Attributes:
      name: of the semaphore, or "".
      count: at which it stands.
      copies: that were started and that nobody waited for: what carries one out, and its line.
    """

    name: str
    count: int
    copies: tuple[tuple[Callable[[], None], str], ...]


class Watched(tpu_memory.SharedMemory):
    """Memory that knows its names, which of its elements were written, and who read the others.

    Attributes:
      layout: what it holds.
      first: the exception that ended the run.
      reads: of memory that nobody wrote.
      over: the kernel has ended.
      copies: by JAX's number of each, the core that started it and its `source_info`.
    """

    def watch(self, layout: Layout, fill: Fill | None) -> None:
        """Says what will be allocated, and what is to stand where nobody wrote, if that is not JAX's choice."""
        self.first: Exception | None = None
        self.reads: dict[UndefinedSource, None] = {}
        self.over = False
        self.layout, self._fill = layout, fill
        self._written: dict[Any, Array] = {}  # of buffers that are not all written
        self._moving: dict[Any, Array] = {}  # by core, what was written of the block that the grid's loop copies
        self._scoped: dict[Any, str] = {}
        self._seen: dict[Any, int] = {}
        self.copies: dict[int, tuple[int, Any]] = {}
        self._drawn = 0
        self._mine = threading.Lock()

    def name(self, key: Any) -> str:
        """What the kernel calls a buffer."""
        number = key[1] - _FIRST_BUFFER
        buffers = self.layout.buffers
        return buffers[number].name if number < len(buffers) else self._scoped.get(key, f"{key[0]} {key[1]}")

    def name_of_semaphore(self, number: int) -> str:
        """What the kernel calls a semaphore that is there when it starts; "" for another."""
        known, place = self.layout.semaphores, number - _FIRST_SEMAPHORE
        return known[place] if 0 <= place < len(known) else ""

    def lines(self, semaphore: str, primitives: Sequence[str]) -> list[str]:
        """Where some primitives are called on a semaphore."""
        places = self.layout.places.values()
        array = semaphore.partition("[")[0]
        return list(dict.fromkeys(p.line for p in places if p.semaphore == array and p.primitive in primitives))

    def line(self, source: Any) -> str:
        """Of an equation, from its `source_info`."""
        place = self.layout.places.get(id(source))
        return (place.line if place is not None else line_of(source)) or "code of the pipeline's own"

    def unwritten(self, output: int) -> Array | None:
        """Which elements of an output, up to whole blocks, nobody wrote; None where there is none."""
        number = self.layout.outputs[output]
        return next((~w for key, w in self._written.items() if key[1] - _FIRST_BUFFER == number), None)

    def leftovers(self) -> Iterator[Leftover]:
        """Of all semaphores that are not as they were at the start."""
        for number, semaphore in [*self.sem.items(), *self.fixed_id_sem.items()]:
            late: list[list[Any]] = list(semaphore.tasks)
            for core, tasks in enumerate(late):
                sources = [task.__self__.source_info for task in tasks]  # of a DMA
                places = [self.layout.places[id(s)] for s in sources if id(s) in self.layout.places]
                name = self.name_of_semaphore(number) or next((p.semaphore for p in places), "")
                copies = tuple((task, self.line(source)) for task, source in zip(tasks, sources, strict=True))
                if copies or semaphore.count_by_core[core]:
                    yield Leftover(name, int(semaphore.count_by_core[core]), copies)

    def get_random_virtual_device_id(self) -> int:
        """A clock of its own for each copy, in turn: two that drew the same one would seem to be in order."""
        with self._mine:
            self._drawn += 1
        return int(self.num_cores + self._drawn % (self.vector_clock_size - self.num_cores))

    def append_semaphore_task(self, semaphore_id: int, global_core_id: int, task: Any) -> None:
        copy = task.__self__
        self.copies[copy.id] = copy.src_local_core_id, copy.source_info
        super().append_semaphore_task(semaphore_id, global_core_id, task)

    def set_failed(self, exception: Exception, *args: Any, **kwargs: Any) -> None:
        self.first = self.first or exception
        super().set_failed(exception, *args, **kwargs)

    def allocate_buffer(self, key: Any, ref_count: int, value: Array, *args: Any, **kwargs: Any) -> None:
        number, buffers = key[1] - _FIRST_BUFFER, self.layout.buffers
        given = buffers[number].given if number < len(buffers) else None
        written = np.zeros(value.shape, bool)
        if given is not None:
            written[tuple(map(slice, given))] = True
        with self._mine:
            if key not in self.mem and not written.all():  # else another core has made it
                self._written[key] = written
            if number >= len(buffers):
                self._scoped[key] = self._name_scoped(key, _source(kwargs))
        if self._fill is not None:
            value = np.where(written, value, self._fill(value.dtype)).astype(value.dtype)
        super().allocate_buffer(key, ref_count, value, *args, **kwargs)

    def _name_scoped(self, key: Any, source: Any) -> str:
        place = self.layout.places.get(id(source))
        names = place.allocates if place is not None else ()
        turn = (id(source), key[2:])
        self._seen[turn] = self._seen.get(turn, -1) + 1
        return names[self._seen[turn] % len(names)] if names else f"the {key[0]} memory of {self.line(source)}"

    def get_buffer_content(self, key: Any, rnge: Any, thread: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        source = _source(kwargs)
        self._check("read", key, rnge, source)
        part = self._written[key][rnge] if key in self._written else None
        if source is None:
            self._moving.pop(thread, None)
        if part is not None and not part.all():
            if source is None:
                self._moving[thread] = part
            else:
                self.reads.setdefault(self._read(key, source))
        return super().get_buffer_content(key, rnge, thread, *args, **kwargs)

    def _read(self, key: Any, source: Any) -> UndefinedSource:
        place, buffers = key[1] - _FIRST_BUFFER, self.layout.buffers
        if place < len(buffers) and (buffers[place].padded or buffers[place].given is not None):
            return UndefinedSource(UndefinedCause.PAST_END, self.line(source), self.name(key))
        return UndefinedSource(UndefinedCause.PARTLY_WRITTEN, self.line(source), self.name(key))

    def store_buffer_content(  # type: ignore[override]
        self, key: Any, rnge: Any, value: Array, thread: Any, *args: Any, **kwargs: Any
    ) -> Any:
        source = _source(kwargs)
        self._check("written", key, rnge, source)
        result = super().store_buffer_content(key, rnge, value, thread, *args, **kwargs)
        moved = self._moving.pop(thread, None) if source is None else None
        if result[0]:
            self._note(key, rnge, True if moved is None else moved)
        return result

    def swap_buffer_content(
        self, key: Any, rnge: Any, value: Array, mask: Array | None, *args: Any, **kwargs: Any
    ) -> Any:
        if mask is None:
            self._check("written", key, rnge, _source(kwargs))
        result = super().swap_buffer_content(key, rnge, value, mask, *args, **kwargs)
        if result[0] is None:
            raise self._outside("written under its mask", key, rnge, _source(kwargs))
        if key in self._written and mask is not None:
            inside = tuple(map(slice, self._written[key][rnge].shape))
            self._note(key, rnge, self._written[key][rnge] | mask[inside])
        elif mask is None:
            self._note(key, rnge, True)
        return result

    def _note(self, key: Any, rnge: Any, written: Any) -> None:
        with self._mine:
            if key not in self._written and written is True:
                return
            whole = self._written.setdefault(key, np.ones(self._buffer(key).content.shape, bool))
            whole[rnge] = written
            if whole.all():
                del self._written[key]

    def _buffer(self, key: Any) -> Any:
        return self.mem[key]

    def _check(self, how: str, key: Any, rnge: Any, source: Any) -> None:
        if source is None:  # a block of the grid's, of which JAX itself says more
            return
        if key not in self.mem:
            raise MisuseError(
                Verdict.RACE, f"{self.name(key)} is {how} by the copy of {self.line(source)} after its scope has ended"
            )
        lengths = self._buffer(key).logical_shape
        if not all(_within(index, length) for index, length in zip(rnge, lengths, strict=False)):
            raise self._outside(how, key, rnge, source)

    def _outside(self, how: str, key: Any, rnge: Any, source: Any) -> MisuseError:
        return MisuseError(
            Verdict.OUT_OF_BOUNDS,
            f"{self.name(key)}[{indices(rnge)}] is {how} at {self.line(source)}, outside of its shape "
            f"{tuple(self._buffer(key).logical_shape)}",
        )


def indices(rnge: Any) -> str:
    """Indices as they are written: `0:8, 3`."""
    return ", ".join(f"{i.start or 0}:{i.stop}" if isinstance(i, slice) else str(i) for i in rnge)


def _within(index: Any, length: int) -> bool:
    if not isinstance(index, slice):
        return 0 <= int(index) < length
    start, stop, step = index.start or 0, length if index.stop is None else index.stop, index.step or 1
    last = start + (stop - start - 1) // step * step
    return bool(start >= 0 and (stop <= start or last < length))


def _source(kwargs: Any) -> Any:
    return getattr(kwargs.get("logging_info"), "source_info", None)
