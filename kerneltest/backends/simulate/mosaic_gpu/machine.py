"""The threads of simulated Mosaic GPU kernels, their barriers, and the asynchronous work that they start.

A warpgroup is one thread, since JAX writes code for whole warpgroups, and so is each warp inside of a `warp_map`. The
blocks of a cluster run together, clusters one after another. A schedule decides when asynchronous work has its effect:
when it starts, as late as what waits for it allows, or at random in between.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from kerneltest.backends.simulate.mosaic_gpu.memory import Agent, Faults, Layout, Memory
from kerneltest.core.details import Access, Hung, Race, Stated, Visit
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict

TMEM_ROWS, TMEM_ROW_BYTES = 128, 2048


class Timing(Enum):
    """When asynchronous work has its effect."""

    LATE = "as late as possible"
    EARLY = "as early as possible"
    RANDOM = "in a random order"


@dataclass(eq=False)
class Barrier:
    """An mbarrier: each of its phases ends when all arrivals are there and no bytes are outstanding."""

    name: str
    expected: int
    arrived: int = 0
    outstanding: int = 0
    phase: int = 0
    pending: int = 0  # events known to those that arrived in this phase
    known: int = 0  # and in those before

    def arrive(self, known: int, place: str, outstanding: int = 0) -> None:
        """Counts one arrival, which may add bytes to wait for."""
        self.arrived += 1
        self.outstanding += outstanding
        if self.arrived > self.expected:
            words = "{barrier} gets more arrivals than the {expected} that it expects"
            detail = Stated(words, {"barrier": self.name, "expected": self.expected}, place)
            raise Failure(Verdict.RUNTIME_ERROR, detail)
        self.settle(known)

    def receive(self, known: int, bytes_: int) -> None:
        self.outstanding -= bytes_
        self.settle(known)

    def settle(self, known: int) -> None:
        """Adds what has become known, and ends the phase if it is complete."""
        self.pending |= known
        if self.arrived == self.expected and not self.outstanding:
            self.known |= self.pending
            self.arrived, self.pending = 0, 0
            self.phase += 1

    def text(self) -> str:
        lacking = f" and lacks {self.outstanding:,} bytes" if self.outstanding else ""
        return f"{self.name}, at which {self.arrived} of {self.expected} arrived in phase {self.phase}{lacking}"


@dataclass(eq=False)
class Flight:
    """Asynchronous work under way."""

    agent: Agent  # accesses memory for it
    apply: Callable[[], None]  # has its effect
    place: str  # that started it
    # barrier, bytes: what is signalled at its end; no bytes stand for an arrival
    barrier: Barrier | None = None
    bytes: int = 0
    before: Sequence["Flight"] = ()  # work that it comes after
    writes: int = 0  # the event of its writes, if it is not that of its reads
    done: bool = False

    def complete(self) -> None:
        """Has the effect, after that of the work that it comes after, and signals its end."""
        under_way = [self]
        while under_way:
            flight = under_way[-1]
            if earlier := [other for other in flight.before if not other.done]:
                under_way += earlier
                continue
            under_way.pop()
            if not flight.done:
                flight._end()

    def _end(self) -> None:
        self.done, self.before = True, ()
        self.apply()
        if self.barrier is not None and self.bytes:
            self.barrier.receive(self.agent.event, self.bytes)
        elif self.barrier is not None:
            self.barrier.arrive(self.agent.event, self.place)


@dataclass(eq=False, slots=True)
class Wait:
    """A wait of threads: whether it is over for one of them, its words, the first one's line, and the barriers."""

    ready: Callable[[], bool]
    text: Callable[[], str]
    place: str
    barriers: tuple[Barrier, ...] = ()


@dataclass(eq=False, slots=True)
class Rendezvous:
    """A point at which a number of threads meet, again and again."""

    arrived: int = 0
    round: int = 0
    pending: int = 0
    known: int = 0


@dataclass(eq=False)
class Block:
    """One block of a grid."""

    index: tuple[int, int, int]  # along x, y and z
    rank: tuple[int, int, int]  # the same in its cluster
    cluster: "Cluster"
    fill: int  # of memory that was never written, a byte
    barriers: dict[int, Barrier] = field(default_factory=dict)
    meetings: dict[Any, Rendezvous] = field(default_factory=dict)

    @cached_property
    def shared(self) -> Memory:
        return self._memory("shared memory", self.cluster.shape.shared, fenced=True)

    @cached_property
    def tensor(self) -> Memory:
        return self._memory("tensor memory", TMEM_ROWS * TMEM_ROW_BYTES)

    def _memory(self, name: str, size: int, *, fenced: bool = False) -> Memory:
        return Memory(name, np.full(size, self.fill, np.uint8), self.cluster.faults, fenced=fenced)


@dataclass(eq=False, slots=True)
class Issued:
    """Asynchronous work that a warp has started."""

    # its groups of stores by TMA; the last one is not committed yet
    stores: list[list[Flight]] = field(default_factory=lambda: [[]])
    writes: int = 0  # the events of its stores whose reads it has waited for
    # tensor, tensor_events: its last tcgen05 product, and the events of all
    tensor: tuple[Flight, ...] = ()
    tensor_events: int = 0


@dataclass(eq=False)
class Thread(Agent):
    """A warpgroup or a warp, with the values that it has computed."""

    block: Block = field(kw_only=True)
    values: list[Any] = field(kw_only=True)  # by number
    number: int = 0  # the first of its hardware threads
    # its groups of wgmma; the last one is not committed yet
    products: list[list[Flight]] = field(default_factory=lambda: [[]])
    # what its warps have started. One thread of the first warp starts work for a warpgroup; all of its threads commit
    # and wait, each for what it has started
    issued: Sequence[Issued] = field(default_factory=lambda: tuple(Issued() for _ in range(4)))
    # the events of its loads and stores of tensor memory under way, by "ld" and "st"
    moves: dict[str, int] = field(default_factory=lambda: {"ld": 0, "st": 0})
    pending: dict[int, Flight] = field(default_factory=dict)  # the wgmma under way, by the ids of their results

    def release(self) -> int:
        """Returns what the thread knows, to pass it on, and begins its next event."""
        known = self.known
        self.event = self.block.cluster.new_event()
        self.known |= self.event
        return known

    def start(self, flight: Flight) -> None:
        self.block.cluster.start(flight)

    def meet(self, meetings: dict[Any, Rendezvous], key: Any, count: int, place: str) -> Iterator[Wait]:
        """Waits until a number of threads, this one included, have come to a point."""
        point = meetings.setdefault(key, Rendezvous())
        point.pending |= self.release()
        point.arrived += 1
        now = point.round
        if point.arrived == count:
            point.known, point.pending, point.arrived, point.round = point.pending, 0, 0, now + 1
        else:
            state = lambda: f"a barrier of {count} warpgroups, to which {point.arrived} came"  # noqa: E731
            yield self._waiting(lambda: point.round > now, state, place)
        self.known |= point.known

    def wait(self, barrier: Barrier, parity: int, place: str) -> Iterator[Wait]:
        """Waits until the phase of a parity is over."""
        if barrier.phase % 2 == parity:
            yield self._waiting(lambda: barrier.phase % 2 != parity, barrier.text, place, barrier)
        self.known |= barrier.known

    def _waiting(self, ready: Callable[[], bool], state: Callable[[], str], place: str, *barriers: Barrier) -> Wait:
        return Wait(ready, lambda: f"{self.who} waits{f' at {place}' if place else ''} for {state()}", place, barriers)

    def split(self) -> list["Thread"]:
        """Returns its four warps, which go on from here."""
        known, warps = self.release(), []
        for number in range(4):
            event = self.block.cluster.new_event()
            warp = Thread(
                self.scope,
                event,
                known | event,
                f"warp {number} of {self.who}",
                self.program,
                16 + 4 * self.slot + number,
                block=self.block,
                values=list(self.values),
                number=self.number + 32 * number,
                issued=self.issued[number : number + 1],
            )
            warps.append(warp)
        return warps

    def join(self, warps: Sequence["Thread"]) -> None:
        """Goes on when its warps have ended."""
        for warp in warps:
            self.known |= warp.known
            self.moves = {kind: events | warp.moves[kind] for kind, events in self.moves.items()}

    def end(self) -> None:
        """Checks that no copy reads the thread's shared memory any longer."""
        for flight in [flight for issued in self.issued for group in issued.stores for flight in group]:
            words = (
                f"{self.who} ends while its copy to global memory{f' at {flight.place}' if flight.place else ''} may "
                "still be reading shared memory: end with plgpu.wait_smem_to_gmem(0)"
            )
            visit = Visit(Access.COPY, self.program, flight.place, self.who)
            self.block.cluster.faults.add(Verdict.RACE, Race("", "shared memory", "", (visit,), words))
            flight.complete()


Threads = Sequence[tuple[Thread, Iterator[Wait]]]


def run_together(threads: Threads, choose: Callable[[list[int]], list[int]] = list) -> Iterator[Wait]:
    """Runs threads in turn, those that are chosen of the ones that can go on, and yields when all of them wait."""
    live = {number: steps for number, (_, steps) in enumerate(threads)}
    waits: dict[int, Wait] = {}
    while live:
        able = [number for number in live if number not in waits or waits[number].ready()]
        if not able:
            all_ = [waits[number] for number in live]
            barriers = tuple(barrier for wait in all_ for barrier in wait.barriers)
            yield Wait(
                lambda all_=all_: any(wait.ready() for wait in all_),  # type: ignore[misc]
                lambda all_=all_: "; ".join(wait.text() for wait in all_),  # type: ignore[misc]
                all_[0].place,
                barriers,
            )
        for number in choose(able):
            waits.pop(number, None)
            try:
                waits[number] = next(live[number])
            except StopIteration:
                del live[number]


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The blocks of a launch and of a cluster along x, y, z, a block's warpgroups and memory, and layouts by result."""

    grid: tuple[int, int, int]
    cluster: tuple[int, int, int]
    threads: int
    shared: int
    layouts: dict[tuple[int, ...], Layout] = field(default_factory=dict)


class Cluster:
    """The blocks of a cluster, and their asynchronous work."""

    def __init__(
        self, timing: Timing, seed: int, faults: Faults, shape: LaunchShape, waiting: deque[tuple[int, int, int]]
    ) -> None:
        self.timing, self.faults, self.shape = timing, faults, shape
        self.waiting = waiting  # the first blocks of the clusters that have not started
        self.scope = object()  # which accesses name, since they outlive the cluster
        self.random = random.Random(seed)
        self.flights: list[Flight] = []
        self.blocks: dict[tuple[int, int, int], Block] = {}
        self.meetings: dict[Any, Rendezvous] = {}
        self._events = 0

    def take_waiting(self) -> tuple[int, int, int] | None:
        """Cancels the next cluster that has not started, and returns its first block: all, some or none by schedule."""
        cancels = self.timing is Timing.EARLY or (self.timing is Timing.RANDOM and self.random.random() < 0.5)
        return self.waiting.popleft() if cancels and self.waiting else None

    def new_event(self) -> int:
        self._events += 1
        return 1 << self._events

    def operation(self, thread: Thread, what: str, place: str) -> Agent:
        """Returns the agent of asynchronous work that a thread starts."""
        event = self.new_event()
        who = f"{what} of {thread.who}" if place else f"{what} in the pipeline of {thread.who}"
        return Agent(self.scope, event, thread.known | event, who, thread.program, -1, asynchronous=True)

    def start(self, flight: Flight) -> None:
        if self.timing is Timing.EARLY:
            flight.complete()
        else:
            self.flights.append(flight)

    def run(self, threads: Threads) -> None:
        """Runs threads until all have ended. Failure: all wait, and no work under way will end that."""
        for wait in run_together(threads, self._choose):
            self.flights = [flight for flight in self.flights if not flight.done]
            awaited = (flight for flight in self.flights if flight.barrier in wait.barriers)
            if (oldest := next(awaited, None)) is None:
                raise Failure(Verdict.HANG, Hung(f"deadlock: {wait.text()}", wait.place))
            oldest.complete()

    def _choose(self, able: list[int]) -> list[int]:
        if self.timing is not Timing.RANDOM or not able:
            return able
        if self.flights and self.random.random() < 0.5:
            self.flights.pop(self.random.randrange(len(self.flights))).complete()
        return [self.random.choice(able)]
