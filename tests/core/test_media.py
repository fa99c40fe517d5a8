"""Foreign text - of kernels, records and files - acts as a command nowhere that it is shown."""

import ast
import json
from pathlib import Path

import pytest

import kerneltest
import kerneltest as kt
from kerneltest.cli import main
from kerneltest.core.failures import DeclarationError
from kerneltest.core.media import for_terminal, lines_for_terminal
from kerneltest.report.html.page import render_card
from tests.written import case, write_run

ACTIVE = "x\n::error file=a::b\n  ::add-mask::x\n##[error]y\x1b[31m\u202e\0\ud800"


def _commands(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.lstrip().startswith("::") or "##[" in line]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", ": :error::x"),
        ("  ::add-mask::x", "  : :add-mask::x"),
        ("a ::b and c::d", "a ::b and c::d"),  # a command begins a line
        ("a ##[error]x ##vso[task]", "a ## [error]x ## vso[task]"),  # runners find these anywhere
        ("## heading", "## heading"),
    ],
)
def test_a_line_is_no_workflow_command(text: str, shown: str) -> None:
    assert for_terminal(text) == shown
    assert lines_for_terminal(f"a\n{text}") == f"a\n{shown}"


READERS = [
    *(["summary", "run"], ["summary", "run", "--format", "github"], ["report", "run", "-o", "page.html"]),
    *(["merge", "run", "-o", "merged"], ["diff", "run", "run"], ["repro", "run", "bad"]),
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("file", ["records", "plan.json", "end.json"])
def test_an_invalid_file_of_a_run_writes_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], file: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "run", case(verdict="mismatch", message="1 of 4 wrong", case="bad", wrong=1))
    path = next(run.glob("*.jsonl")) if file == "records" else run / file
    first, *others = path.read_text(encoding="utf-8").splitlines()
    data = json.loads(first)
    if file == "records":
        data["record"]["detail"]["kind"] = ACTIVE[:-1]
    else:
        data[ACTIVE[:-1]] = data[file.removesuffix(".json")]["run" if file == "plan.json" else ACTIVE[:-1]] = 3
    path.write_text("\n".join([json.dumps(data), *others, ""]), encoding="utf-8")
    assert main(words) in (1, 2)
    said = "".join(capsys.readouterr())
    assert not _commands(said)
    assert "\x1b" not in said


def test_cards_for_notebooks_are_plain_text() -> None:
    card = render_card(ACTIVE, [ACTIVE, "<b>"], counts=ACTIVE)
    assert not {"\x1b", "\u202e", "\0", "\ud800"} & set(card)
    assert "&lt;b&gt;" in card
    card.encode()


def test_a_declared_name_is_shown_without_control_characters() -> None:
    with pytest.raises(DeclarationError) as caught:
        kt.oracle_for(abs, x=kt.array("n\x1b[31m\u202e"), dims={"m": kt.dim()})(abs)
    assert not {"\x1b", "\u202e"} & set(str(caught.value))


# Every call that writes to a terminal or ends a session with a message.

_WRITERS = {"print", "write_line", "UsageError", "exit"}
_NOT_WRITERS = {"sys.exit", "jax.debug.print"}
_SAFE = {"for_terminal", "lines_for_terminal", "github_annotations"}
_OTHERS = {
    "reproduce/standalone.py": "the script, which runs without kerneltest",
    "extensions/sanitizer/child.py": "standard error, which the process that started it reads",
    "extensions/ray/loop.py: done.output": "what tests printed, as they printed it",
    "pytest_plugin/isolation.py: output": "what tests printed, as they printed it",
    "pytest_plugin/hook_guard.py: text": "made safe in the line before",
    "pytest_plugin/summary.py: line.text": "lines of a summary, made safe where it is made",
}


def _is_safe(node: ast.expr) -> bool:
    match node:
        case ast.Starred(value=value):
            return _is_safe(value)
        case ast.Constant():
            return True
        case ast.Call(func=ast.Name(id=name)):
            return name in _SAFE or (name == "map" and getattr(node.args[0], "id", "") in _SAFE)
        case ast.Call(func=ast.Attribute(attr="join", value=ast.Constant()), args=[joined]):
            return _is_safe(joined)
    return False


def test_whatever_is_written_to_a_terminal_is_made_safe() -> None:
    root = Path(kerneltest.__file__).parent
    unsafe, used = [], set()
    for path in sorted(root.rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        for call in ast.walk(ast.parse(text)) if any(writer in text for writer in _WRITERS) else ():
            if not isinstance(call, ast.Call):
                continue
            called = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
            if called not in _WRITERS or ast.unparse(call.func) in _NOT_WRITERS:
                continue
            for argument in call.args:
                reasons = {name, f"{name}: {ast.unparse(argument)}"} & _OTHERS.keys()
                used |= reasons
                if not reasons and not _is_safe(argument):
                    unsafe.append(f"{name}:{call.lineno}: {ast.unparse(call)[:80]}")
    assert not unsafe
    assert used == _OTHERS.keys()
