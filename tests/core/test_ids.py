"""Ids of pairings, items, backends and places are taken apart and put together again."""

import pytest

from kerneltest.core.ids import BackendId, ItemId, PairingId, Place


@pytest.mark.parametrize(
    ("text", "file", "classes", "variable", "own_name"),
    [
        ("suites/test_t.py::softmax", "suites/test_t.py", [], "softmax", "softmax"),
        ("t.py::TestNorms::norms[0]", "t.py", ["TestNorms"], "norms", "norms[0]"),
        ("t.py", "t.py", [], "t.py", "t.py"),
    ],
)
def test_pairings(text: str, file: str, classes: list[str], variable: str, own_name: str) -> None:
    node = PairingId.parse(text)
    assert (str(node), node.file, node.classes, node.variable, node.own_name) == (
        text, file, classes, variable, own_name
    )  # fmt: skip


def test_items_of_arrays_of_pairings() -> None:
    item = ItemId.of("t.py::norms[0]", "interpret-tpu", "float32")
    assert str(item) == "t.py::norms[0][interpret-tpu-float32]"
    assert ItemId.parse(str(item)) == item
    assert item.unavailable == ItemId.of("t.py::norms[0]", "interpret-tpu")


@pytest.mark.parametrize(("text", "parts"), [("lower:sm_90", ("lower", "sm_90")), ("cuda", ("cuda", ""))])
def test_backends_with_and_without_a_target(text: str, parts: tuple[str, str]) -> None:
    assert BackendId.parse(text) == BackendId(*parts)
    assert str(BackendId(*parts)) == text


@pytest.mark.parametrize("text", ["", "k.py", "k.py:", ":3", "k.py:x", "k.py:0", "k.py:²", f"k.py:{2**31}", "k.py:-1"])
def test_texts_that_are_no_place(text: str) -> None:
    assert Place.parse(text) is None
    assert str(Place.parse("C:/k.py:12")) == "C:/k.py:12"
