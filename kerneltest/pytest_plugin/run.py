"""One pytest run: its options, its folder, and what its items share."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.backends.registry import ALL, backend_ids
from kerneltest.core.run_options import RunOption, registered_options
from kerneltest.plan.lengths import DEPTHS
from kerneltest.pytest_plugin.executor import Arguments
from kerneltest.pytest_plugin.folder import FolderError, RunFolder
from kerneltest.pytest_plugin.shards import Shard, parsed, seconds_of

if TYPE_CHECKING:
    from kerneltest.core.failures import Failure
    from kerneltest.declare.pairing import Pairing
    from kerneltest.execute.item import Item
    from kerneltest.pytest_plugin.collect import Holder
    from kerneltest.pytest_plugin.executor import Cluster, Engine
    from kerneltest.pytest_plugin.isolation import Child
    from kerneltest.pytest_plugin.session import Summary
    from kerneltest.pytest_plugin.worker import Ended, Process, Setup, Task
    from kerneltest.records.journal import Doing
    from kerneltest.records.result_cache import Store
    from kerneltest.records.schema import Plan

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/accel0", "/dev/vfio/0")  # of NVIDIA, AMD and TPUs

OPTIONS = {
    "kt_depth": ("standard", "how many lengths and combinations to try: quick, standard or deep"),
    "kt_seed": ("0", "seed of all random values"),
    "kt_backends": (
        ALL,
        "comma-separated backend ids and patterns ('compile:*'); one named and absent fails, among 'all' it is skipped",
    ),
    "kt_orders": ("0", "on simulate:*, also run programs one after another in so many random orders"),
    "kt_fuzz": ("0", "also draw so many cases for each pairing and dtype, with Hypothesis, and shrink what fails"),
    "kt_timeout": ("600", "seconds that a case may spend in one step, such as its compilation; 0 for no limit"),
    "kt_minimize": ("10", "seconds to look for the smallest case of each suspect; 0 for none"),
    "kt_budget": ("0", "seconds for each pairing on each backend, beyond which cases are left out; 0 for no limit"),
    "kt_isolate": ("device", "which items run in a process of their own, which may die: always, device or never"),
    "kt_memory": ("0", "GiB that such a process may take; 0 for nine tenths of what is free when it starts"),
    "kt_shard": ("", "run one part of several, as 2/3; kerneltest merge joins them"),
    "kt_durations": ("", "folder of an earlier run, by whose times shards are made alike"),
    "kt_ray": ("", "run on the Ray cluster at this address: local, auto or host:port (needs kerneltest[ray])"),
    "kt_ray_gpus": ("1", "how many GPUs, or what share of one, an item of a device takes on the cluster"),
    "kt_ray_accelerator": ("", "the type of these GPUs, as Ray names it, such as H100"),
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
        self.fuzz, self.timeout = self._number("kt_fuzz"), self._number("kt_timeout")
        self.seconds = self._number("kt_minimize")
        if self.seconds < 0:
            raise pytest.UsageError(f"--kt-minimize: {self.seconds} is no number of seconds")
        self.budget = self._number("kt_budget")
        if self.budget < 0:
            raise pytest.UsageError(f"--kt-budget: {self.budget} is no number of seconds")
        if self.fuzz < 0:
            raise pytest.UsageError(f"--kt-fuzz: {self.fuzz} is no number of cases")
        if self.timeout < 0:
            raise pytest.UsageError(f"--kt-timeout: {self.timeout} is no number of seconds")
        if self.fuzz and not find_spec("hypothesis"):
            raise pytest.UsageError("--kt-fuzz needs Hypothesis: pip install 'kerneltest[fuzz]'")
        self.isolate, self.memory = self._isolation()
        self.part = self._part()
        added: dict[str, Any] = {option.name: self._added(option) for option in registered_options()}
        self.prove: bool = added["kt_prove"]
        self.sanitize: tuple[str, ...] = added["kt_sanitize"]
        self.artifacts = bool(config.getoption("kt_artifacts") or config.getini("kt_artifacts"))
        if self.artifacts and not self.report:
            raise pytest.UsageError("--kt-artifacts needs --kt-report, the folder to keep them in")
        # A backend that was asked for by name and is absent fails; one among all is skipped with its reason.
        try:
            self.asked_by_name = frozenset(backend_ids([word for word in self.backend_ids if word != ALL]))
            if not backend_ids(self.backend_ids):
                raise ValueError("name at least one backend, or 'all'")
        except ValueError as error:
            raise pytest.UsageError(f"--kt-backends: {error}") from error
        self.worker = getattr(config, "workerinput", None)
        self.is_xdist_controller = self.worker is None and bool(config.getoption("numprocesses", None))
        self.ray, self.gpus, self.accelerator = self._cluster()
        self.cluster: Cluster | None = None
        self.resume = bool(config.getoption("kt_resume"))
        if self.resume and not self.report and not config.option.collectonly:
            raise pytest.UsageError("--kt-resume needs --kt-report, the folder of the run to go on with")
        self.only_changed = bool(config.getoption("kt_changed"))
        if self.only_changed and self.part is not None:
            raise pytest.UsageError(
                "--kt-changed and --kt-shard: machines remember different runs; leave one of them out"
            )
        self.followed: dict[str, str] = {}  # what items follow from, as a digest, by node id
        self.home = self._claim_folder()
        self.folder = self.home.path
        self._earlier = self._plan_before()
        self.has_plan = False  # whether this run has written a plan, here or in a worker
        self.summary: Summary | None = None
        self.holders: list[Holder] = []
        self.dtypes: Counter[tuple[str, str]] = Counter()  # of the items selected, by pairing and backend
        self._made_before = self._count_made()
        self.crashed: dict[str, list[tuple[str, object]]] = {}
        self.deaths: Counter[str] = Counter()  # by item
        self._backends: Any = None
        self.parts: frozenset[tuple[str, str, str]] = frozenset()  # pairing, backend and dtype of what is selected
        self._process: Process | None = None
        self._child: Child | None = None
        self._standard_error = os.dup(2)  # before pytest captures what is written there

    def _option(self, name: str) -> str:
        given = self.config.getoption(name)
        return str(self.config.getini(name) if given is None else given)

    def _added(self, option: RunOption) -> object:
        """The value of an option that an extension or a user has registered."""
        if option.parse is None:
            return bool(self.config.getoption(option.name) or self.config.getini(option.name))
        try:
            return option.parse(self._option(option.name))
        except ValueError as error:
            raise pytest.UsageError(f"{option.flag}: {error}") from error

    def _number(self, name: str) -> int:
        try:
            return int(self._option(name))
        except ValueError as error:
            raise pytest.UsageError(f"--{name.replace('_', '-')}: {error}") from error

    def _isolation(self) -> tuple[str, float]:
        """Which items run in a process of their own, and how many GiB that may take."""
        isolate, memory = self._option("kt_isolate"), self._option("kt_memory")
        if isolate not in ("always", "device", "never"):
            raise pytest.UsageError(f"--kt-isolate: {isolate!r} is none of always, device and never")
        try:
            most = float(memory)
        except ValueError:
            most = -1.0
        if not 0 <= most < math.inf:
            raise pytest.UsageError(f"--kt-memory: {memory!r} is no number of GiB")
        # A debugger talks to the process that pytest runs in.
        return ("never" if self.config.getoption("usepdb", False) else isolate), most

    def _cluster(self) -> tuple[str, float, str]:
        """The address of a Ray cluster, "" for none; how many GPUs an item takes there, and of which type."""
        address, gpus, accelerator = (self._option(f"kt_ray{name}") for name in ("", "_gpus", "_accelerator"))
        try:
            share = float(gpus)
        except ValueError:
            share = 0.0
        if not 0 < share < math.inf or (share > 1 and share % 1):
            raise pytest.UsageError(f"--kt-ray-gpus: {gpus!r} is no number of GPUs, nor a share of one")
        if not address:
            return "", share, accelerator
        if not find_spec("ray"):
            raise pytest.UsageError("--kt-ray needs Ray: pip install 'kerneltest[ray]'")
        if self.worker is not None or self.is_xdist_controller:
            raise pytest.UsageError("--kt-ray and -n: the cluster has its own workers; leave -n out, or say -n0")
        if self.isolate == "never":
            words = "--kt-ray runs each item in a process of its own on some node"
            raise pytest.UsageError(f"{words}: leave --kt-isolate never and --pdb out")
        return address, share, accelerator

    def _part(self) -> tuple[Shard, dict[str, float]] | None:
        """The shard that was asked for, and what items took in an earlier run; None for the whole run."""
        shard, durations = self._option("kt_shard"), self._option("kt_durations")
        if not shard:
            if durations and self.config.getoption("kt_durations") is not None:
                raise pytest.UsageError("--kt-durations is for --kt-shard, whose parts it makes alike")
            return None
        from kerneltest.records.io import RecordError

        try:
            return parsed(shard), seconds_of(self._path("kt_durations")) if durations else {}
        except RecordError as error:
            raise pytest.UsageError(f"--kt-durations: {error}") from error
        except ValueError as error:
            raise pytest.UsageError(f"--kt-shard: {error}") from error

    def _path(self, name: str) -> Path:
        """A folder that an option names, relative to where pytest was started; an ini value to the ini file."""
        named = self.config.getoption(name) is not None
        base = self.config.invocation_params.dir if named or not self.config.inipath else self.config.inipath.parent
        return Path(base, self._option(name))

    def _claim_folder(self) -> RunFolder:
        """The run's folder. What an earlier run left there stays until this one has a plan."""
        if self.worker is not None:
            return RunFolder(Path(self.worker["kt_folder"]), self.worker["kt_run"])
        if not self.report or self.config.option.collectonly:
            return RunFolder.temporary()
        try:
            return RunFolder.claimed(self._path("kt_report"))
        except FolderError as error:
            raise pytest.UsageError(f"--kt-report: {error}") from error

    def _plan_before(self) -> Plan | None:
        """The plan of the run that is to go on."""
        if not self.resume or self.worker is not None or self.config.option.collectonly:
            return None
        from kerneltest.records.io import RecordError
        from kerneltest.records.resume import planned_before

        try:
            return planned_before(self.folder)
        except RecordError as error:
            self.home.release()
            raise pytest.UsageError(f"--kt-resume: {error}") from error

    def make_room(self, plan: Plan | None = None) -> None:
        """Clears the folder of an earlier run for this one, or makes that ready to go on.

        Args:
          plan: of this run; None where a worker has written it.
        """
        self.has_plan = True
        if self._earlier is None:
            self.home.clear()
            return
        from kerneltest.records.io import RecordError, read_plan, write_plan
        from kerneltest.records.resume import differences, make_ready

        try:
            unlike = "; ".join(differences(self._earlier, plan or read_plan(self.folder)))
            if not unlike:
                make_ready(self.folder)
        except RecordError as error:
            unlike = str(error)
        if unlike:
            write_plan(self.folder, self._earlier)  # a worker's may be there
            self.has_plan = False
            words = f"--kt-resume: this is not the run that {self.folder} holds: {unlike}. Undo that, or leave it out"
            pytest.exit(words, returncode=pytest.ExitCode.USAGE_ERROR)

    @staticmethod
    def _count_made() -> int:
        known = sys.modules.get("kerneltest.declare.pairing")
        return len(known.MADE) if known is not None else 0

    def made(self) -> list[Pairing]:
        """The pairings that were made since the session began."""
        from kerneltest.declare.pairing import MADE

        return MADE[self._made_before :]

    @property
    def collects_folders(self) -> bool:
        """Whether whole folders are collected, and not single files or items, or a part of them."""
        options = self.config.option
        partly = getattr(options, "lf", False) or options.ignore or options.ignore_glob  # the cache may be off
        return not partly and all("::" not in each and not each.endswith(".py") for each in self.config.args)

    def planned_elsewhere(self) -> bool:
        """Whether a worker has written this run's plan."""
        if not (self.is_xdist_controller and (self.folder / "plan.json").exists()):
            return False
        from kerneltest.records.io import RecordError, read_plan

        try:
            return read_plan(self.folder).run == self.home.run
        except RecordError:
            return False

    @property
    def arguments(self) -> Arguments:
        """By what a process collects the same items as this one; an xdist worker has its controller's words."""
        config, option = self.config, self.config.option
        words = self.worker["kt_arguments"] if self.worker is not None else [
            *map(str, config.invocation_params.args),
            # What others write when they end is this session's alone.
            *(["-n0"] if config.pluginmanager.hasplugin("xdist") else []),
            *(["--no-cov"] if config.pluginmanager.hasplugin("_cov") else []),
            *(["--junitxml="] if getattr(option, "xmlpath", None) else []),
            *(["--html="] if getattr(option, "htmlpath", None) else []),
        ]  # fmt: skip
        return Arguments(tuple(words), config.invocation_params.dir, config.getoption("capture") != "no")

    @property
    def backends(self) -> Any:
        if self._backends is None:
            from kerneltest.backends.registry import resolve

            self._backends = resolve(self.backend_ids, self.orders)
            if self.cluster is not None:
                self._backends = self.cluster.served(self._backends)
        return self._backends

    @property
    def process(self) -> Process:
        """What runs items in this process."""
        if self._process is None:
            from kerneltest.pytest_plugin.worker import Process

            console = None if self.worker is not None else self._standard_error
            self._process = Process(self.setup(self.shard), self._give_up, console)
        return self._process

    def setup(self, shard: str) -> Setup:
        """What a process of that name is told."""
        from kerneltest.pytest_plugin.worker import Setup

        return Setup(
            folder=self.folder,
            shard=shard,
            planned=self.parts,
            timeout=self.timeout,
            minimize=self.seconds,
            artifacts=self.artifacts,
            compiled=self.kept(),
            root=self.config.rootpath,
            report=self.report,
            asked_by_name=self.asked_by_name,
            cases=self.config.option.verbose > 0,
            resumes=self.resume,
        )

    def kept(self) -> Path | None:
        """Where executables are kept between runs; None without pytest's cache (-p no:cacheprovider)."""
        cache = getattr(self.config, "cache", None)
        try:
            return None if cache is None else cache.mkdir("kerneltest")
        except OSError as error:
            warnings.warn(f"kerneltest keeps no compiled code: {error}", pytest.PytestWarning, stacklevel=2)
            return None

    @property
    def store(self) -> Store | None:
        """What was green in earlier runs; None without pytest's cache."""
        from kerneltest.records.result_cache import Store

        return None if (folder := self.kept()) is None else Store(folder / "green")

    @property
    def keeps_records(self) -> bool:
        """Whether records of this run say all of an item: no files beside them, no time that they had to keep to."""
        return not (self.artifacts or self.budget or self.resume or self.ray)

    def found_before(self, part: Item, node_id: str) -> Ended | None:
        """How an item ended in an earlier run, whose records are this run's now; None where it is to be run.

        A device is asked each time: it, and not what it is given, is what may have changed.
        """
        from kerneltest.core.targets import Tier
        from kerneltest.core.verdicts import Verdict
        from kerneltest.pytest_plugin.worker import Ended

        made, store = self.followed.get(node_id), self.store
        if not made or store is None or not self.keeps_records or part.backend.tier is Tier.DEVICE:
            return None
        if (kept := store.records(node_id, made)) is None:
            return None
        self.process.writer.copy(kept.lines)
        return Ended(str(Verdict.PASS), kept.families)

    def task(self, part: Item, node_id: str, *, again: bool) -> Task:
        """How an item is run of which this is a part; `again` where it was begun before."""
        from kerneltest.pytest_plugin.worker import Task
        from kerneltest.report.commands import pytest_command

        file, _, name = node_id.partition("::")
        path = Path(os.path.relpath(self.config.rootpath / file, self.config.invocation_params.dir)).as_posix()
        # Its share of the time that a pairing has on a backend: dtypes share it equally.
        budget = self.budget / self.dtypes[part.pairing_id, part.backend.id] if self.budget else 0.0
        return Task(part.name, pytest_command(self, part.backend.id, f"{path}::{name}"), budget, again)

    def engine_for(self, part: Item) -> Engine:
        """What runs an item of which this is a part: this process, one that it watches, or a cluster."""
        from kerneltest.core.targets import Tier

        if self.cluster is not None and not part.backend.unavailable():
            return self.cluster
        device = part.backend.tier is Tier.DEVICE and not part.backend.unavailable()
        if self.isolate == "never" or (self.isolate == "device" and not device):
            return self.process
        return self.child

    @property
    def child(self) -> Child:
        """The process that this one watches."""
        if self._child is None:
            from kerneltest.pytest_plugin.isolation import Child

            self._child = Child(self.process, self.arguments, self.memory)
        return self._child

    def collects(self) -> None:
        """Starts the process that this one will watch, once there is a pairing, where there are processors for it."""
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        idle = (os.cpu_count() or 1) >= 2 * workers
        if self._child is None and idle and self._isolates() and not self.config.option.collectonly:
            self.child.start()

    def _isolates(self) -> bool:
        """Whether some item is likely to run in a process of its own."""
        from kerneltest.core.targets import Tier

        if self.isolate == "never" or self.cluster is not None:
            return False
        device = any(backend.tier is Tier.DEVICE for backend in self.backends)
        return self.isolate == "always" or (device and any(Path(each).exists() for each in _DRIVERS))

    def expect(self, parts: Iterable[Item]) -> None:
        """Says what the run does, once it has collected."""
        self.parts = frozenset((part.pairing_id, part.backend.id, part.dtype) for part in parts)
        self.dtypes = Counter((pairing, backend) for pairing, backend, _ in self.parts)
        if self._process is not None:
            self._process.expect(self.parts)

    @property
    def shard(self) -> str:
        """The name of this process among those of the run."""
        return "controller" if self.is_xdist_controller else os.environ.get("PYTEST_XDIST_WORKER", "main")

    def _give_up(self, doing: Doing, failure: Failure) -> None:
        """Keeps what there is, when this process is about to be ended. A worker's controller does that for it."""
        if self.worker is not None:
            return
        from kerneltest.pytest_plugin import crash_reports, session

        if items := crash_reports.planned(self.folder, doing.item):
            crash_reports.record(self.process.writer, items, doing, failure)
        summary = session.finish(self.folder, report=self.report)
        lines = [f"kerneltest ended this process: {failure}", f"It was {doing}.", *(line for line, _ in summary.lines)]
        os.write(self._standard_error, ("\n" + "\n".join(lines) + "\n").encode("utf-8", "backslashreplace"))
        self.home.release()

    def planned(self) -> dict[str, int]:
        """Cases by item of what can be served here, once the plan is written; under xdist a worker writes it."""
        from kerneltest.records.io import RecordError, read_plan

        try:
            plan = read_plan(self.folder)
        except RecordError:
            return {}
        counts: Counter[str] = Counter()
        for each in plan.items:
            counts[each.item] += sum(each.families.values()) if each.backend not in plan.unavailable else 0
        return +counts

    def doing(self) -> tuple[int, str]:
        """How many cases of the item that runs for this process are judged, and what is done for the next one."""
        if self.cluster is not None:
            return self.cluster.doing()
        if self._child is not None and self._child.busy:
            return self._child.judged, "running"
        if self._process is None:
            return 0, ""
        prepared = list(self._process.cache.prepared.values())
        done = sum(each.done() for each in prepared)
        return self._process.judged, "running" if done == len(prepared) else f"compiling {done} of {len(prepared)} for"

    def doing_now(self) -> Doing | None:
        """What the item that runs for this process is about."""
        if self._child is not None and self._child.busy:
            return self._child.doing()
        return self._process.cache.journal.doing if self._process is not None else None

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        if self._process is not None:
            self._process.close()
        os.close(self._standard_error)
        self.home.release()


RUN = pytest.StashKey[Run]()
