"""What `--kt-sanitize` may say, and how a tool is started."""

from pathlib import Path

import pytest

from kerneltest.extensions.sanitizer import tools as tools


@pytest.mark.parametrize(
    ("text", "chosen"),
    [
        ("", ()),
        ("guards, memcheck", ("memcheck", "guards")),
        ("synccheck,synccheck,", ("synccheck",)),
        ("all", tuple(tools.TOOLS)),
    ],
)
def test_words_stand_for_tools_in_their_order(text: str, chosen: tuple[str, ...]) -> None:
    assert tools.parse_tools(text) == chosen


def test_an_unknown_word_names_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"unknown tool 'leakcheck'; known are memcheck, initcheck, .* guards, or 'all'"
    ):
        tools.parse_tools("memcheck,leakcheck")


def test_only_guards_need_no_compute_sanitizer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(tools, "_TOOLKIT", Path("/none"))
    assert [tool for tool in tools.TOOLS if not tools.reason_missing(tool)] == ["guards"]
    assert tools.tool_command("guards", Path()) == []


def test_a_tool_writes_its_errors_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "find_compute_sanitizer", lambda: "/bin/compute-sanitizer")
    command = tools.tool_command("racecheck", tmp_path)
    assert command[:3] == ["/bin/compute-sanitizer", "--tool", "racecheck"]
    assert str(tmp_path / tools.ERRORS) in command
    assert "--padding" not in command
    assert "--padding" in tools.tool_command("memcheck", tmp_path)
