"""A Ray cluster: its nodes, what is handed to them, and what comes back. The one module that imports Ray."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import NodeDiedError, RayError, RayTaskError, TaskCancelledError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from kerneltest.extensions.ray.code import Code, in_words, unlike
from kerneltest.extensions.ray.events import Event, Lost, Needs, Orders, Over, Work

_CLEANED_WITHIN = 5.0  # seconds for jobs that are ended before their time
_EVERY = 2.0  # seconds between two looks at the cluster
_ANSWERS_WITHIN = 10.0  # seconds for the head of a cluster
_DEVICES_WITHIN = 600  # seconds for a node to say which devices it has


class FleetError(Exception):
    """A cluster that cannot be used; says why and what to do."""


class Fleet:
    """The cluster at an address, once connected."""

    def __init__(self, address: str) -> None:
        """Args:
        address: as `ray.init` takes it: `local` for a cluster on this machine alone, `auto`, or `host:port`.

        Raises:
          FleetError: there is none.
        """
        if address.startswith("ray://"):
            raise FleetError(
                f"{address}: Ray Client passes no streams on. Start the run on a node of the cluster: "
                "ray job submit --working-dir . -- kerneltest run --ray auto"
            )
        if address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        elif ":" in address:
            _knock(address)
        quietly: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            ray.init(address=address, **quietly, **({"include_dashboard": False} if address == "local" else {}))
        except (ConnectionError, ValueError, RuntimeError, OSError, RayError) as error:
            raise FleetError(f"{address}: no cluster answers: {_first_line(error)}") from error
        self._orders: Any = None
        self._running: dict[Any, int] = {}  # streams, to the number of the job
        self._looked, self._words = -_EVERY, ""

    def resources(self) -> Mapping[str, float]:
        """What all nodes have together."""
        return dict(ray.cluster_resources())

    def devices(self, ids: Sequence[str], needs: Needs) -> Mapping[str, tuple[str, Mapping[str, str]]]:
        """By device: why a node that has what is needed cannot serve it, or "", and what is recorded of it.

        Raises:
          FleetError: no node says so.
        """
        asked = ray.remote(**needs.options, max_retries=3, max_calls=1)(_devices)  # its process keeps the device
        try:
            answer: Mapping[str, tuple[str, Mapping[str, str]]] = ray.get(
                asked.remote(list(ids)), timeout=_DEVICES_WITHIN
            )
        except RayError as error:
            raise FleetError(f"no node says which devices it has: {_first_line(error)}") from error
        return answer

    def inspect(self, code: Code, root: Path) -> bool:
        """Whether the project's files must be shipped, since some node has none or others at the same place.

        Raises:
          FleetError: a node has other packages.
        """
        asked = {
            node["NodeID"]: ray.remote(unlike)
            .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            .remote(code, root)
            for node in ray.nodes()
            if node["Alive"]
        }
        missing, refused = False, []
        for node, reference in asked.items():
            try:
                installed, files = ray.get(reference)
            except RayTaskError as error:
                installed, files = [_first_line(error.cause)], []
            except RayError:
                continue  # it died meanwhile
            missing |= bool(files)
            if installed:
                refused.append(f"node {_host(node)}: {in_words(installed)}")
        if refused:
            raise FleetError("; ".join(refused) + ". Install the same packages on all nodes")
        return missing

    def begin(self, orders: Orders) -> None:
        """Takes what all jobs are told."""
        self._orders = ray.put(orders)

    def submit(self, number: int, works: Sequence[Work], needs: Needs) -> None:
        """Hands out a job, which is never run again of itself."""
        job = ray.remote(num_returns="streaming", max_retries=0, **needs.options)(_serve)
        self._running[job.remote(self._orders, list(works))] = number

    def events(self, seconds: float) -> Iterator[tuple[int, Event | Lost | Over]]:
        """What comes within some seconds, each with the number of its job.

        Raises:
          FleetError: no job can be run.
        """
        if not self._running:
            return
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        for stream in ready:
            number = self._running[stream]
            try:
                event: Event = ray.get(next(stream))
            except StopIteration:
                del self._running[stream]
                yield number, Over()
            except TaskCancelledError:
                del self._running[stream]
            except RayError as error:
                from kerneltest.extensions.ray.ray_actor import RefusedError

                del self._running[stream]
                cause = getattr(error, "cause", None)
                if isinstance(cause, RefusedError):
                    raise FleetError(str(cause)) from error
                yield number, Lost(isinstance(error, NodeDiedError), _first_line(cause or error))
            else:
                yield number, event

    def words(self) -> str:
        """The cluster in words, as of the last few seconds: `2 nodes, 3 of 4 CPUs busy`."""
        if time.monotonic() - self._looked > _EVERY:
            self._looked = time.monotonic()
            there, free = ray.cluster_resources(), ray.available_resources()
            nodes = sum(bool(node["Alive"]) for node in ray.nodes())
            told = [f"{nodes} node{'s' * (nodes != 1)}"]
            for name in ("CPU", "GPU", "TPU"):
                if total := there.get(name, 0.0):
                    told.append(f"{total - free.get(name, 0.0):g} of {total:g} {name}s busy")
            self._words = ", ".join(told)
        return self._words

    def close(self, unfinished: Collection[int]) -> None:
        """Ends all jobs, those that are unfinished before their time.

        Args:
          unfinished: numbers of jobs.
        """
        for stream, number in self._running.items():
            if number in unfinished:
                ray.cancel(stream, force=False)
        until = time.monotonic() + _CLEANED_WITHIN
        while self._running and time.monotonic() < until:
            with suppress(FleetError):
                for _ in self.events(_CLEANED_WITHIN):
                    pass
        ray.shutdown()


def _serve(orders: Orders, works: Sequence[Work]) -> Iterator[Event]:
    """Runs a job on a node."""
    from kerneltest.extensions.ray.ray_actor import Station

    with closing(Station(orders, ray.get_runtime_context().get_node_id())) as station:
        yield from station.serve(works)


def _devices(ids: Sequence[str]) -> Mapping[str, tuple[str, Mapping[str, str]]]:
    from kerneltest.backends.registry import resolve

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    found = {}
    for backend in resolve(ids):
        reason = backend.unavailable()
        facts = {} if reason else {key: str(value) for key, value in backend.environment().items()}
        found[backend.id] = reason, facts
    return found


def _knock(address: str) -> None:
    """Ray itself waits for minutes where nobody answers, and ends this process then.

    Raises:
      FleetError: nobody does.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN).close()
    except (OSError, ValueError, OverflowError) as error:
        raise FleetError(
            f"{address}: no cluster answers: {error}; name host:port of its head, as in 10.0.0.1:6379"
        ) from error


def _host(node: str) -> str:
    return next((str(each["NodeManagerHostname"]) for each in ray.nodes() if each["NodeID"] == node), node[:8])


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
