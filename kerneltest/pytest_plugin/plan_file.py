"""The plan of a run in its folder: who writes it, and whether an interrupted run can be resumed with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kerneltest.execute.settings import RunSettings
    from kerneltest.pytest_plugin.run_folder import RunFolder
    from kerneltest.records.run_plan import Plan


class PlanFile:
    """The plan of a run. Until this run has one, its folder keeps what an earlier run left there.

    Attributes:
      is_written: whether this run has written its plan, here or in an xdist worker.
    """

    def __init__(self, folder: RunFolder, resumed: Plan | None) -> None:
        """Initialises the instance.

        Args:
          folder: of the run.
          resumed: the plan of the run to resume; None for a new run.
        """
        self.is_written = False
        self._folder, self._resumed = folder, resumed

    @classmethod
    def open(cls, folder: RunFolder, settings: RunSettings, *, may_resume: bool) -> PlanFile:
        """Reads the plan of the run to resume, if there is one.

        Args:
          folder: of the run.
          settings: of the run.
          may_resume: False in xdist workers and for `--collect-only`, which leave that to others.

        Raises:
          pytest.UsageError: the folder has no run that can be resumed.
        """
        if not (settings.resume and may_resume):
            return cls(folder, None)
        from kerneltest.records.files import RecordError
        from kerneltest.records.resume import load_previous_plan
        from kerneltest.report.text.tables import lines_for_terminal

        try:
            return cls(folder, load_previous_plan(folder.path))
        except RecordError as error:
            folder.release()
            raise pytest.UsageError(lines_for_terminal(f"--kt-resume: {error}")) from error

    def begin_run(self, plan: Plan | None = None) -> None:
        """Clears the folder of an earlier run, or prepares that run to be resumed.

        Ends the session if the run to resume is another one.

        Args:
          plan: of this run; None if a worker has written it.
        """
        self.is_written = True
        if self._resumed is None:
            self._folder.clear()
            return
        from kerneltest.records.files import RecordError
        from kerneltest.records.record_files import read_plan, write_plan
        from kerneltest.records.resume import prepare_resume, resume_obstacles

        path = self._folder.path
        try:
            problem = "; ".join(resume_obstacles(self._resumed, plan or read_plan(path)))
            if not problem:
                prepare_resume(path)
        except RecordError as error:
            problem = str(error)
        if problem:
            write_plan(path, self._resumed)  # a worker may have overwritten it
            self.is_written = False
            message = f"--kt-resume: this run differs from the one in {path}: {problem}. Undo that or omit --kt-resume"
            pytest.exit(message, returncode=pytest.ExitCode.USAGE_ERROR)

    def is_written_by_worker(self) -> bool:
        """Returns whether an xdist worker has written this run's plan."""
        if not (self._folder.path / "plan.json").exists():
            return False
        from kerneltest.records.files import RecordError
        from kerneltest.records.record_files import read_plan

        try:
            return read_plan(self._folder.path).run == self._folder.run
        except RecordError:
            return False

    def cases_by_item(self) -> dict[str, int]:
        """Returns the number of cases of each item whose backend is available; {} before the plan is written."""
        from kerneltest.records.files import RecordError
        from kerneltest.records.record_files import read_plan
        from kerneltest.records.run_plan import ANY

        try:
            plan = read_plan(self._folder.path)
        except RecordError:
            return {}
        counts: Counter[str] = Counter()
        for each in plan.items:
            counts[each.item] += sum(each.families.values()) if each.group != ANY else 0
        return +counts
