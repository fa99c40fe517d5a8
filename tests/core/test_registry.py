"""Registries list entries in order, refuse a name that is taken, and import extensions before they are first read."""

from dataclasses import dataclass

import pytest

from kerneltest import extensions
from kerneltest.core.extension_registry import Registry


@dataclass(frozen=True)
class Thing:
    name: str
    value: int = 0


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry[Thing]:
    monkeypatch.setitem(extensions.MODULES, "things", ())
    return Registry("thing", extended_by="things")


def test_entries_are_sorted_by_order_then_by_registration(registry: Registry[Thing]) -> None:
    for name, order in (("late", 20), ("first", 10), ("later", 20)):
        registry.add(Thing(name), "here", order)
    registry.add(Thing("user's"), "conftest")
    assert [each.name for each in registry.entries()] == ["first", "late", "later", "user's"]
    assert registry.get("late") == Thing("late")
    assert registry.get("none") is None


def test_a_module_may_register_an_entry_again(registry: Registry[Thing]) -> None:
    registry.add(Thing("a", 1), "conftest")
    registry.add(Thing("a", 2), "conftest")
    assert registry.entries() == (Thing("a", 2),)
    with pytest.raises(ValueError, match="thing: the name 'a' is already registered by conftest"):
        registry.add(Thing("a", 3), "another")


def test_extensions_are_imported_before_the_first_reading(
    registry: Registry[Thing], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def load(name: str) -> None:
        loaded.append(name)
        registry.add(Thing("extension's"), "extension", 5)

    monkeypatch.setattr(extensions, "load", load)
    registry.add(Thing("built in"), "here", 10)
    assert loaded == []
    assert [each.name for each in registry.entries()] == ["extension's", "built in"]
    assert registry.entries()
    assert loaded == ["things"]
