"""A Ray cluster: its nodes, the jobs on them, and their messages. The only module that imports Ray."""

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

from kerneltest.extensions.ray.code import ProjectCode, code_differences, format_reasons
from kerneltest.extensions.ray.messages import JobLost, JobOver, JobSetup, NodeEvent, QueuedItem, Resources

_CANCEL_WITHIN = 5.0  # seconds for unfinished jobs to end
_CONNECT_WITHIN = 10.0  # seconds for the head of a cluster to answer
_DEVICES_WITHIN = 600  # seconds for a node to report its devices

Devices = Mapping[str, tuple[str, Mapping[str, str]]]


class ClusterError(Exception):
    """A cluster that cannot be used; says why and what to do."""


class RayCluster:
    """A connection to a cluster."""

    def __init__(self, address: str) -> None:
        """Connects to `local`, `auto` or `host:port`, as `ray.init` does. Raises `ClusterError` if none answers."""
        if address.startswith("ray://"):
            raise ClusterError(
                f"{address}: Ray Client does not support streaming. Start the run on a node of the cluster: "
                "ray job submit --working-dir . -- kerneltest run --ray auto"
            )
        if address == "local":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        elif ":" in address:
            _check_head(address)
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address == "local":
            options["include_dashboard"] = False
        try:
            ray.init(address=address, **options)
        except (ConnectionError, ValueError, RuntimeError, OSError, RayError) as error:
            raise ClusterError(f"{address}: no cluster answers: {_first_line(error)}") from error
        self._setup: Any = None  # a reference to the `JobSetup`
        self._running: dict[Any, int] = {}  # the number of the job of each stream

    def resources(self) -> Mapping[str, float]:
        return dict(ray.cluster_resources())

    def devices(self, ids: Sequence[str], needs: Resources) -> Devices:
        """Asks a node: why each backend is unavailable there, or "", and facts. ClusterError if none answers."""
        query = ray.remote(**needs.options, max_retries=3, max_calls=1)(_devices)  # its process occupies the device
        try:
            answer: Devices = ray.get(query.remote(list(ids)), timeout=_DEVICES_WITHIN)
        except RayError as error:
            raise ClusterError(f"no node reports its devices: {_first_line(error)}") from error
        return answer

    def needs_archive(self, code: ProjectCode, root: Path) -> bool:
        """Returns whether a node lacks these files below `root`. ClusterError if its packages differ."""
        hosts = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
        queries = {
            node: ray.remote(code_differences)
            .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False))
            .remote(code, root)
            for node in hosts
        }
        has_differences, problems = False, []
        for node, reference in queries.items():
            try:
                packages, files = ray.get(reference)
            except RayTaskError as error:
                packages, files = [_first_line(error.cause)], []
            except RayError:
                continue  # the node died
            has_differences |= bool(files)
            if packages:
                problems.append(f"node {hosts[node]}: {format_reasons(packages)}")
        if problems:
            raise ClusterError("; ".join(problems) + ". Install the same packages on all nodes")
        return has_differences

    def share(self, setup: JobSetup) -> None:
        self._setup = ray.put(setup)

    def submit(self, number: int, items: Sequence[QueuedItem], needs: Resources) -> None:
        """Submits a job. Ray does not retry it."""
        job = ray.remote(num_returns="streaming", max_retries=0, **needs.options)(_serve)
        self._running[job.remote(self._setup, list(items))] = number

    def events(self, seconds: float) -> Iterator[tuple[int, NodeEvent | JobLost | JobOver]]:
        """Yields the messages of some seconds, by job. ClusterError if a node cannot run jobs."""
        if not self._running:
            return
        ready, _ = ray.wait(list(self._running), num_returns=1, timeout=seconds)
        for stream in ready:
            number = self._running[stream]
            try:
                event: NodeEvent = ray.get(next(stream))
            except StopIteration:
                del self._running[stream]
                yield number, JobOver()
            except TaskCancelledError:
                del self._running[stream]
            except RayError as error:
                from kerneltest.extensions.ray.actor import CodeMismatchError

                del self._running[stream]
                cause = getattr(error, "cause", None)
                if isinstance(cause, CodeMismatchError):
                    raise ClusterError(str(cause)) from error
                yield number, JobLost(isinstance(error, NodeDiedError), _first_line(cause or error))
            else:
                yield number, event

    def close(self, unfinished: Collection[int]) -> None:
        """Cancels unfinished jobs, waits for all others, and disconnects."""
        for stream, number in self._running.items():
            if number in unfinished:
                ray.cancel(stream, force=False)
        until = time.monotonic() + _CANCEL_WITHIN
        while self._running and time.monotonic() < until:
            with suppress(ClusterError):
                for _ in self.events(_CANCEL_WITHIN):
                    pass
        ray.shutdown()


def _serve(setup: JobSetup, items: Sequence[QueuedItem]) -> Iterator[NodeEvent]:
    from kerneltest.extensions.ray.actor import NodeWorker

    with closing(NodeWorker(setup, ray.get_runtime_context().get_node_id())) as worker:
        yield from worker.serve(items)


def _devices(ids: Sequence[str]) -> Devices:
    from kerneltest.backends.registry import resolve

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    devices = {}
    for backend in resolve(ids):
        reason = backend.unavailable()
        facts = {} if reason else {key: str(value) for key, value in backend.environment().items()}
        devices[backend.id] = reason, facts
    return devices


# Ray itself would wait for minutes and then end this process.
def _check_head(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_WITHIN).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ClusterError(
            f"{address}: no cluster answers: {error}; give host:port of its head, as in 10.0.0.1:6379"
        ) from error


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
