"""Settings: one table of defaults and checks, from which options, plans and commands come."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kerneltest.execute.settings import (
    COUNT,
    FLAG,
    SETTINGS,
    RunSettings,
    Setting,
    SettingError,
    known_settings,
    option_words,
    register_setting,
)
from kerneltest.records.record_files import read_plan
from kerneltest.records.run_plan import Plan
from tests.written import PASS, write_run


def test_a_plan_has_every_setting_that_decides_its_cases() -> None:
    planned = {setting.name for setting in known_settings() if setting.planned}
    assert planned <= {each.name for each in fields(Plan)}
    assert planned == set(RunSettings().plan_fields())


@pytest.mark.parametrize("setting", known_settings(), ids=lambda setting: setting.name)
def test_the_text_of_a_default_gives_the_default(setting: Setting[Any]) -> None:
    if not setting.is_flag:
        assert setting.parse(setting.default_text) == setting.default
    assert RunSettings().get(setting) == setting.default


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"depth": "shallow"}, "--kt-depth must be one of quick, standard, deep, not 'shallow'"),
        ({"minimize": -1}, "--kt-minimize must be a non-negative number of seconds, not -1"),
        ({"ray_gpus": 1.5}, "--kt-ray-gpus must be a positive whole number of GPUs, or a fraction of one, not 1.5"),
        ({"nope": 1}, "--kt-nope is not a setting of kerneltest or an extension"),
        ({"backends": ()}, "--kt-backends must name at least one backend, or 'all'"),
    ],
)
def test_a_value_that_is_not_allowed_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as error:
        RunSettings.of(**values).named_backends()
    assert error.value.as_option() == message


def test_settings_and_the_plan_made_with_them_give_the_same_options(tmp_path: Path) -> None:
    settings = RunSettings.of(depth="quick", seed=3, fuzz=20, prove=True, sanitize=("memcheck", "guards"))
    words = "--kt-depth quick --kt-seed 3 --kt-fuzz 20 --kt-prove --kt-sanitize memcheck,guards".split()
    assert option_words(settings) == words
    assert option_words(read_plan(write_run(tmp_path / "out", PASS, **settings.plan_fields()))) == words


@pytest.mark.parametrize("name", ["depth", "prove"])
def test_a_name_is_registered_once(name: str) -> None:
    with pytest.raises(ValueError, match=f"the name '{name}' is"):
        register_setting(Setting(name, False, FLAG, "a second one"), __name__)


def test_settings_are_in_the_order_of_the_table() -> None:
    assert [setting.name for setting in SETTINGS][:2] == ["depth", "seed"]
    assert Setting("tries", 0, COUNT, "number of tries").words(2) == []  # no command repeats it
