"""Exceptions of kerneltest in what pytest calls: words and exit code 3, before, in and after a session."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kerneltest
from kerneltest.pytest_plugin.hook_guard import describe_os_error, guard_hooks, guard_members
from tests import forked
from tests.plugins import PLUGINS
from tests.pytest_plugin.test_collect import KERNEL, OPTIONS

# Frames that count as kerneltest's.
SOURCE = """
def pytest_plain():
    raise LookupError("injected")

def pytest_before():
    raise LookupError("injected")
    yield

def pytest_after():
    yield
    raise LookupError("injected")

def pytest_right():
    result = yield
    return result + 1

def pytest_mended():
    try:
        yield
    except ValueError:
        return "mended"

class Item:
    def place(self):
        raise LookupError("injected")
"""


@pytest.fixture
def hooks() -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "kerneltest.injected"}
    exec(SOURCE, namespace)
    guard_hooks(namespace)
    return namespace


def wrap(hook: Callable[[], Any], others: Callable[[], object]) -> object:
    generator = hook()
    try:
        next(generator)
        try:
            result = others()
        except Exception as error:
            generator.throw(error)
        else:
            generator.send(result)
    except StopIteration as end:
        return end.value
    raise AssertionError("it yielded twice")


def refuse() -> object:
    raise ValueError("theirs")


def test_its_exceptions_end_the_session_in_words(hooks: dict[str, Any]) -> None:
    item = guard_members("place")(hooks["Item"])()
    calls = [hooks["pytest_plain"], item.place, *(lambda n=n: wrap(hooks[n], list) for n in BOTH)]
    for call in calls:
        with pytest.raises(pytest.exit.Exception, match="kerneltest raised LookupError while in") as raised:
            call()
        assert raised.value.returncode == pytest.ExitCode.INTERNAL_ERROR


BOTH = ("pytest_before", "pytest_after")


# Classes of plugins whose sessions are not the user's: what they raise ends in a message of the command or the item.
UNGUARDED = {"_PairingCollector", "_Picker", "_ItemCollector", "_EndAtLimit"}


def test_hooks_in_classes_of_plugins_are_guarded_too() -> None:
    unguarded = set()
    for path in Path(kerneltest.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "def pytest_" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and "def pytest_" in (text := ast.unparse(node)):
                unguarded |= {node.name} if "guard_hooks(vars())" not in text else set()
    assert unguarded == UNGUARDED


def test_a_reporter_that_raises_ends_the_session_in_words(tmp_path: Path) -> None:
    text = PLUGIN.format(module="kerneltest.pytest_plugin.summary", names="Reporter._explained", error=INTERNAL)
    raises = "owner._explained = property(namespace['raises'], lambda self, value: None)\n"
    (tmp_path / "injecting.py").write_text(text + raises, encoding="utf-8")
    (tmp_path / "test_a.py").write_text("def test_red(): assert False", encoding="utf-8")
    run = forked.run(tmp_path, "pytest", "-p", "injecting", *PLUGINS, "-p", "no:cacheprovider")
    assert run.returncode == pytest.ExitCode.INTERNAL_ERROR, run.stdout
    assert "kerneltest raised LookupError while in pytest's hook terminal_summary" in run.stderr
    assert "Traceback" not in run.stdout + run.stderr


def test_what_other_hooks_raise_or_return_passes(hooks: dict[str, Any]) -> None:
    assert wrap(hooks["pytest_right"], lambda: 1) == 2
    assert wrap(hooks["pytest_mended"], refuse) == "mended"
    for name in ("pytest_right", "pytest_after"):
        with pytest.raises(ValueError, match="theirs"):
            wrap(hooks[name], refuse)
        with pytest.raises(RuntimeError) as raised:  # as Python makes of it, and pluggy takes apart
            wrap(hooks[name], lambda: next(iter(())))
        assert type(raised.value.__cause__) is StopIteration


def test_a_test_that_raises_stop_iteration_fails_alone(tmp_path: Path) -> None:
    text = "def test_stops(): raise StopIteration\ndef test_green(): pass"
    (tmp_path / "test_stops.py").write_text(text, encoding="utf-8")
    run = forked.run(tmp_path, "pytest", *PLUGINS, "-p", "no:cacheprovider")
    assert "1 failed, 1 passed" in run.stdout, run.stdout
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


# A plugin that has a function of kerneltest raise, which is called before or after the session.
PLUGIN = """
from importlib import import_module
namespace = {{"__name__": "kerneltest.injected"}}
exec('''
def raises(*args, **options):
    raise {error}
''', namespace)
owner = import_module({module!r})
for name in {names!r}.split(".")[:-1]:
    owner = getattr(owner, name)
setattr(owner, {names!r}.rpartition(".")[2], namespace["raises"])
"""
INTERNAL, FULL = "LookupError('injected')", "OSError(28, 'No space left on device')"
OUTSIDE = [
    ("kerneltest.execute.settings", "register_setting"),  # by an extension that registers
    ("kerneltest.pytest_plugin.pytest_run", "known_settings"),
    ("kerneltest.pytest_plugin.dispatch", "Dispatcher.close"),
]


@pytest.mark.parametrize(("module", "names"), OUTSIDE)
def test_outside_of_a_session_the_command_ends_with_3_and_the_message_alone(
    module: str, names: str, tmp_path: Path
) -> None:
    (tmp_path / "injecting.py").write_text(PLUGIN.format(module=module, names=names, error=INTERNAL), encoding="utf-8")
    (tmp_path / "test_green.py").write_text("def test_green(): pass", encoding="utf-8")
    run = forked.run(tmp_path, "pytest", "-p", "injecting", *PLUGINS, "-p", "no:cacheprovider")
    assert run.returncode == pytest.ExitCode.INTERNAL_ERROR, run.stderr
    assert run.stderr.startswith("kerneltest raised LookupError while in pytest's hook ")
    assert "Traceback" not in run.stdout + run.stderr


def test_an_error_of_a_file_names_it(tmp_path: Path) -> None:
    file = tmp_path / "none"
    with pytest.raises(FileNotFoundError) as raised:
        file.read_text(encoding="utf-8")
    assert describe_os_error(raised.value) == f"kerneltest cannot read or write {file}: No such file or directory"


@pytest.mark.parametrize("names", ["write_plan", "RecordWriter.write", "RecordWriter.close"])
def test_a_full_disk_ends_a_session_in_words(names: str, tmp_path: Path) -> None:
    plugin = PLUGIN.format(module="kerneltest.records.record_files", names=names, error=FULL)
    (tmp_path / "injecting.py").write_text(plugin, encoding="utf-8")
    (tmp_path / "test_a.py").write_text(KERNEL + "right = PAIR(lambda x: 2 * x)\n", encoding="utf-8")
    run = forked.run(tmp_path, "pytest", "-p", "injecting", *PLUGINS, "-p", "no:cacheprovider", *OPTIONS)
    said = run.stdout + run.stderr
    assert run.returncode == pytest.ExitCode.TESTS_FAILED, said
    assert "kerneltest cannot read or write its files: [Errno 28] No space left on device" in said
    assert "Traceback" not in said
    assert "INTERNALERROR" not in said
