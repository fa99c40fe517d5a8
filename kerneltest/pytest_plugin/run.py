"""One pytest run: its options, its folder, and what its items share."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.backends.registry import ALL, backend_ids
from kerneltest.plan.depths import DEPTHS

if TYPE_CHECKING:
    from kerneltest.pytest_plugin.session import Summary
    from kerneltest.run.planning import PairingPlan

OPTIONS = {
    "kt_depth": ("standard", "how many lengths and combinations to try: quick, standard or deep"),
    "kt_seed": ("0", "seed of all random values"),
    "kt_backends": (
        ALL,
        "comma-separated backend ids and patterns ('compile:*'); one named and absent fails, among 'all' it is skipped",
    ),
    "kt_orders": ("0", "on simulate:*, also run programs one after another in so many random orders"),
    "kt_fuzz": ("0", "also draw so many cases for each pairing and dtype, with Hypothesis, and shrink what fails"),
    "kt_report": ("", "folder for the plan, the records and report.html"),
}


class Run:
    """One pytest run: its options, its folder, and what its items share. Imports kerneltest's core on first use."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.depth = self._option("kt_depth")
        self.backend_ids = [each.strip() for each in self._option("kt_backends").split(",") if each.strip()]
        self.report = self._option("kt_report")
        if self.depth not in DEPTHS:
            raise pytest.UsageError(f"--kt-depth: unknown depth {self.depth!r}; known are {', '.join(DEPTHS)}")
        self.seed, self.orders = self._number("kt_seed"), self._number("kt_orders")
        self.fuzz = self._number("kt_fuzz")
        if self.fuzz < 0:
            raise pytest.UsageError(f"--kt-fuzz: {self.fuzz} is no number of cases")
        if self.fuzz and not find_spec("hypothesis"):
            raise pytest.UsageError("--kt-fuzz needs Hypothesis: pip install 'kerneltest[fuzz]'")
        self.artifacts = bool(config.getoption("kt_artifacts") or config.getini("kt_artifacts"))
        if self.artifacts and not self.report:
            raise pytest.UsageError("--kt-artifacts needs --kt-report, the folder to keep them in")
        # A backend that was asked for by name and is absent fails; one among all is skipped with its reason.
        self.asked_by_name = self.backend_ids != [ALL]
        try:
            if not backend_ids(self.backend_ids):
                raise ValueError("name at least one backend, or 'all'")
        except ValueError as error:
            raise pytest.UsageError(f"--kt-backends: {error}") from error
        self.worker = getattr(config, "workerinput", None)
        self.is_xdist_controller = self.worker is None and bool(config.getoption("numprocesses", None))
        self.folder = self._make_folder()
        self.summary: Summary | None = None
        self.judged = 0  # cases of the item that is running
        self.plans: list[PairingPlan] = []
        self.crashed: dict[str, list[tuple[str, object]]] = {}
        self._backends: Any = None
        self._writer: Any = None
        self._cache: Any = None

    def _option(self, name: str) -> str:
        given = self.config.getoption(name)
        return str(self.config.getini(name) if given is None else given)

    def _number(self, name: str) -> int:
        try:
            return int(self._option(name))
        except ValueError as error:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {error}") from error

    def _make_folder(self) -> Path:
        """The run's folder, empty of an earlier run's records; said to be unwritable before anything is run."""
        if self.worker is not None:
            return Path(self.worker["kt_folder"])
        if not self.report or self.config.option.collectonly:
            return Path(tempfile.mkdtemp(prefix="kerneltest-"))
        folder = Path(self.config.invocation_params.dir, self.report)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / ".writable"
            probe.write_text("")
            probe.unlink()
            for old in [*folder.glob("records-*.jsonl*"), folder / "plan.json", folder / "report.html"]:
                old.unlink(missing_ok=True)
            for name in ("cases", "artifacts"):
                shutil.rmtree(folder / name, ignore_errors=True)
        except OSError as error:
            raise pytest.UsageError(f"--kt-report: cannot write to {folder}: {error.strerror or error}") from error
        return folder

    @property
    def backends(self) -> Any:
        if self._backends is None:
            from kerneltest.backends.jitted import cache_on_disk
            from kerneltest.backends.registry import resolve

            cache = getattr(self.config, "cache", None)  # absent under -p no:cacheprovider
            if cache is not None:
                cache_on_disk(cache.mkdir("kerneltest"))
            self._backends = resolve(self.backend_ids, self.orders)
        return self._backends

    @property
    def cache(self) -> Any:
        if self._cache is None:
            from kerneltest.run.cache import Cache

            self._cache = Cache()
        return self._cache

    @property
    def writer(self) -> Any:
        if self._writer is None:
            from kerneltest.records.io import Writer

            shard = "controller" if self.is_xdist_controller else os.environ.get("PYTEST_XDIST_WORKER", "main")
            self._writer = Writer(self.folder, shard)
        return self._writer

    def planned(self) -> dict[str, int]:
        """Cases by item of what can be served here, once the plan is written; under xdist a worker writes it."""
        from kerneltest.records.io import RecordError, read_plan

        try:
            plan = read_plan(self.folder)
        except RecordError:
            return {}
        return {each.item: sum(each.families.values()) for each in plan.items if each.backend not in plan.unavailable}

    def doing(self) -> tuple[int, str]:
        """How many cases of the item that runs in this process are judged, and what is done for the next one."""
        if self.is_xdist_controller:
            return 0, ""
        prepared = list(self._cache.prepared.values()) if self._cache else []
        done = sum(each.done() for each in prepared)
        return self.judged, "running" if done == len(prepared) else f"compiling {done} of {len(prepared)} for"

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._cache is not None:
            self._cache.pool.shutdown(cancel_futures=True)
        if not self.report and self.worker is None:
            shutil.rmtree(self.folder, ignore_errors=True)


RUN = pytest.StashKey[Run]()
