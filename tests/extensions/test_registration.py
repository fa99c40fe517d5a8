"""What users can add, and that the built-in extensions add it by the same functions."""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import kerneltest as kt
from kernels.vector_add import vector_add
from kerneltest.backends.registry import resolve
from kerneltest.cli import main
from kerneltest.cli.command_registry import COMMANDS, Command, register_command
from kerneltest.core.extension_registry import Registry
from kerneltest.execute.cache import Cache
from kerneltest.execute.item import Group, Item, Outcome
from kerneltest.execute.planning import ALL_GROUPS, plan_pairing, register_group
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings, known_settings
from kerneltest.plan.cases import Case
from kerneltest.plan.explicit import AnyCase
from kerneltest.plan.families import marker_family
from kerneltest.plan.signatures import signatures
from kerneltest.records.record_files import write_plan
from kerneltest.records.run_plan import Plan
from kerneltest.records.runs import Overlay
from kerneltest.report.panels import PANELS, Panel, PanelError, Section, register_panel


def _copy(registry: Registry[object], monkeypatch: pytest.MonkeyPatch) -> None:
    registry.entries()
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))


def test_built_in_extensions_are_registered() -> None:
    import kerneltest.extensions.sanitizer.group  # noqa: F401 - the order does not depend on what comes first

    names = [group.name for group in ALL_GROUPS.entries()]
    assert names[-5:] == ["rejects", "proofs", "bits", "sanitized", "fuzz"]
    assert [command.name for command in COMMANDS.entries()] == (
        "init doctor audit run watch report summary merge diff repro certificate lowering mutate coverage".split()
    )
    assert {"--kt-mutate", "--kt-prove", "--kt-sanitize"} <= {setting.option for setting in known_settings()}
    assert [panel.name for panel in PANELS.entries()] == ["mutants"]


class OneCall(Group):
    name = "one_call"
    _family = marker_family("one_call", name)

    def applies_to(self, backend: kt.Backend) -> bool:
        return backend.id == "interpret"

    def cases(self, item: Item) -> Iterator[AnyCase]:
        for signature in signatures(item.pairing, item.depth)[:1]:
            yield Case(item.pairing_id, item.pairing.name, signature, self._family, "", item.seed)

    def problem(self, items: Sequence[Item]) -> str:
        return "one_call: a warning" if any(item.group is self for item in items) else ""

    def judge(self, item: Item, case: AnyCase, cache: Cache) -> Outcome:
        calls = cache.traces.of(item.pairing, case.signature, item.backend).calls
        return Outcome(item.record(kt.Verdict.PASS, case=case, compared=len(calls)))


def test_a_group_of_a_user_is_planned_and_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    _copy(ALL_GROUPS, monkeypatch)
    group = register_group(OneCall())
    assert ALL_GROUPS.get("one_call") is group
    pairing = kt.oracle_for(
        vector_add, x=kt.array("n", "float32"), y=kt.array("n", "float32"), dims={"n": kt.dim(block=128)}
    )(lambda x, y: x + y)
    items = plan_pairing(pairing, "p", resolve(["interpret"]), RunSettings(depth="quick")).items
    (item,) = (item for item in items if item.group is group)
    assert item is items[-1]
    (outcome,) = run_item(item, Cache())
    assert (outcome.record.verdict, outcome.record.compared) == ("pass", 1)


def test_a_command_of_a_user_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _copy(COMMANDS, monkeypatch)

    def hello(chosen: argparse.Namespace) -> int:
        print(f"hello {chosen.name}")
        return 1

    register_command(Command("hello", "say hello", lambda parser: parser.add_argument("name") and None, hello))
    assert main(["hello", "you"]) == 1
    assert capsys.readouterr().out == "hello you\n"
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "say hello" in capsys.readouterr().out


def test_a_panel_of_a_user_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _copy(PANELS, monkeypatch)

    def section(chosen: argparse.Namespace, merged: Overlay) -> Section | None:
        if chosen.weather == "bad":
            raise PanelError("the weather is bad")
        html = '<section id="view-weather" data-view="weather">rain</section>'
        return Section("weather", "Weather", html) if chosen.weather else None

    register_panel(Panel("weather", lambda parser: parser.add_argument("--weather") and None, section))
    write_plan(tmp_path, Plan((), 0, "quick", {}, {}, {}))
    out = tmp_path / "page.html"
    main(["report", str(tmp_path), "-o", str(out), "--weather", "good"])
    page = out.read_text()
    assert '<a href="#/weather" data-view="weather">Weather</a>' in page
    assert page.count("rain</section>") == 1
    assert main(["report", str(tmp_path), "-o", str(out), "--weather", "bad"]) == 2
