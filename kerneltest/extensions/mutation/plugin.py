"""The pytest plugin of this extension: with `--kt-mutate`, items that judge mutants follow those of their pairing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kerneltest.core.grouping import group_pairs
from kerneltest.extensions.mutation import LEAST, MUTATE
from kerneltest.pytest_plugin.hook_guard import guard_hooks
from kerneltest.pytest_plugin.kernel_item import KernelItem, PairingItem
from kerneltest.pytest_plugin.pytest_run import RUN

if TYPE_CHECKING:
    from kerneltest.execute.item import Item
    from kerneltest.records.schema import MutationScore


def pytest_configure(config: pytest.Config) -> None:
    settings = config.stash[RUN].settings
    if settings.get(LEAST) and not settings.get(MUTATE):
        raise pytest.UsageError("--kt-mutate-least needs --kt-mutate, whose scores it is about")
    if settings.get(MUTATE):
        config.pluginmanager.register(MutantItems(config), "kerneltest-mutants")


class MutantItems:
    """A pytest plugin that adds an item for the mutants of each selected pairing."""

    def __init__(self, config: pytest.Config) -> None:
        self._run = config.stash[RUN]
        self._failed: set[str] = set()  # node ids, in this process

    @pytest.hookimpl(trylast=True)  # once selection and order are known, and before shards are made
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Adds an item after the last one of each pairing, about what is selected of that."""
        pairings = group_pairs((item.item.pairing_id, item) for item in items if isinstance(item, KernelItem))
        followers: dict[pytest.Item, MutantItem] = {
            own[-1]: self._make_item(pairing_id, own) for pairing_id, own in pairings.items()
        }
        items[:] = [each for item in items for each in (item, followers.get(item)) if each is not None]

    def _make_item(self, pairing_id: str, own: Sequence[KernelItem]) -> MutantItem:
        parent = own[0].parent
        assert parent is not None
        nodeid = f"{pairing_id}[mutants]"
        parts = [part for item in own for part in item.items]
        name = nodeid.removeprefix(f"{parent.nodeid}::")
        return MutantItem.from_parent(parent, name=name, nodeid=nodeid, items=parts, plugin=self)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.add(report.nodeid)

    def judge(self, item: MutantItem) -> MutationScore:
        from kerneltest.execute.watchdog import limit_time
        from kerneltest.extensions.mutation.judging import BACKENDS, MutationSession, fit_items
        from kerneltest.extensions.mutation.operators import OPERATORS
        from kerneltest.extensions.mutation.results import score_of
        from kerneltest.records.journal import Journal
        from kerneltest.records.schema import MutationScore

        worker, pairing_id = self._run.dispatcher.worker, item.items[0].pairing_id
        fit = fit_items(item.items, BACKENDS.split(","))
        if any(part.name in self._failed for part in item.items):
            score = MutationScore(pairing=pairing_id, problem="the pairing itself has failed")
        elif not fit:
            score = MutationScore(pairing=pairing_id, problem=f"none of its items runs on {BACKENDS}")
        else:
            with worker.jax_settings():
                journal = Journal()  # the run's own would say that the items of the pairing run again
                with limit_time(journal, self._run.settings.timeout):
                    session = MutationSession(fit, worker.cache, journal)
                    trials = [session.judge(mutant) for mutant in session.mutants(OPERATORS.entries())]
                score = score_of(pairing_id, trials)
        worker.writer.write_score(score)
        return score

    guard_hooks(vars())


class MutantItem(PairingItem):
    """The mutants of a pairing's kernel, judged by the items that are selected of the pairing."""

    def __init__(self, *, items: Sequence[Item], plugin: MutantItems, **kwargs: Any) -> None:
        super().__init__(pairing=items[0].pairing.origin, **kwargs)
        self.items = items
        self._plugin = plugin

    def runtest(self) -> None:
        from kerneltest.core.media import lines_for_terminal
        from kerneltest.report.text.terminal_summary import mutant_lines

        score = self._plugin.judge(self)
        text = lines_for_terminal("\n".join(mutant_lines([score])))
        least = self.config.stash[RUN].settings.get(LEAST)
        if score.problem and not least:
            pytest.skip(text)
        if (score.share or 0.0) < least:  # without a judged mutant, the score is 0
            pytest.fail(f"{text}\n--kt-mutate-least asks for {least:.1%}", pytrace=False)
