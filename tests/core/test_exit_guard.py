"""No door of kerneltest ends with 0 because tested code ended the process or nothing was judged."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.execute.settings import Setting, SettingError, known_settings
from tests import forked

ROOT = Path(__file__).parents[2]
KERNEL = """
import os
import sys
from kernels.vector_add import vector_add

def double(x):
    {leave}
    return vector_add(x, x + {more})
"""
SUITE = """
import kerneltest as kt
from double import double

@kt.oracle_for(double, x=kt.array("n", "float32"), dims=dict(n=kt.dim(values=(3,))))
def doubled(x):
    return 2 * x
"""
OPTIONS = ("--kt-backends", "interpret", "--kt-depth", "quick", "--kt-minimize", "0", "--kt-report", "out")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, its kernel and a run that found the kernel wrong."""
    folder = tmp_path_factory.mktemp("found")
    (folder / "double.py").write_text(KERNEL.format(leave="pass", more=1), encoding="utf-8")
    (folder / "test_double.py").write_text(SUITE, encoding="utf-8")
    run = forked.run(folder, "pytest", "-q", "-p", "kerneltest", "-p", "no:cacheprovider", *OPTIONS)
    assert run.returncode == 1, run.stdout + run.stderr
    return folder


@pytest.mark.sweep(4)
@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "os.execl('/bin/true', 'true')"])
@pytest.mark.parametrize("door", ["repro", "mutate", "coverage", "script"])
def test_a_kernel_that_leaves_makes_no_success(found: Path, door: str, leave: str) -> None:
    (found / "double.py").write_text(KERNEL.format(leave=leave, more=0), encoding="utf-8")
    scripts = sorted((found / "out/cases").glob("*.py"))
    script = next(each for each in scripts if "def conforms" in each.read_text(encoding="utf-8"))  # without kerneltest
    case = script.stem.removeprefix("reproduce_").partition("-")[0]
    words = {
        "repro": ("kerneltest", "repro", "out", case),
        "mutate": ("kerneltest", "mutate", "test_double.py", "--least", "0.9", "--no-advice"),
        "coverage": ("kerneltest", "coverage", "test_double.py", "--depth", "quick"),
        "script": (),
    }[door]
    if words:
        run = forked.run(found, *words)
    else:
        path = os.pathsep.join([str(ROOT), str(found)])
        environment = {**os.environ, "PYTHONPATH": path}
        run = subprocess.run(
            [sys.executable, script], cwd=found, env=environment, capture_output=True, text=True, check=False
        )
    said = run.stdout + run.stderr
    assert run.returncode in (1, 2), said
    assert "Traceback" not in said
    assert re.search(r"(?i)exit|execv|no mutant|not measured", said), said


@pytest.mark.parametrize("least", [("--least", "0.5"), ()])
def test_nothing_judged_reaches_no_share(found: Path, monkeypatch: pytest.MonkeyPatch, least: tuple[str, ...]) -> None:
    monkeypatch.chdir(found)
    monkeypatch.syspath_prepend(found)
    (found / "double.py").write_text(KERNEL.format(leave="pass", more=0), encoding="utf-8")
    words = ["mutate", "test_double.py", "--backends", "interpret", "--operators", "mask-dropped", "--no-advice"]
    assert main([*words, *least]) == int(bool(least))


@pytest.mark.parametrize(
    "words",
    [
        ("summary", "out", "--markdown"),
        ("report", "out", "-o"),
        ("mutate", "test_double.py", "--backends", "interpret", "--operators", "mask-dropped", "--no-advice", "--json"),
    ],
    ids=lambda words: words[0],
)
def test_a_file_on_a_full_disk_makes_no_success(
    found: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(found)
    monkeypatch.syspath_prepend(found)
    (found / "double.py").write_text(KERNEL.format(leave="pass", more=0), encoding="utf-8")
    assert main([*words, "/dev/full"]) == 2
    assert "No space left on device" in capsys.readouterr().err


FLOATS = [setting for setting in known_settings() if isinstance(setting.default, float)]


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1"])
@pytest.mark.parametrize("setting", FLOATS, ids=lambda setting: setting.name)
def test_no_setting_takes_a_number_without_a_meaning(setting: Setting[float], text: str) -> None:
    with pytest.raises(SettingError):
        setting.check(setting.parse(text))


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "2"])
def test_a_share_is_from_0_to_1(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["mutate", "test_double.py", f"--least={text}"])
    assert ended.value.code == 2
    assert "from 0 to 1" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0.5"])
def test_a_factor_is_a_number_of_at_least_1(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["diff", "old", "new", f"--factor={text}"]) == 2
    assert "--factor must be" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_a_limit_is_a_number_of_seconds(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["init", "a:b", "--shapes", "x=3", f"--limit={text}"])
    assert ended.value.code == 2
    assert "not a number of seconds" in capsys.readouterr().err


def test_an_interrupted_command_shows_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kerneltest.records.runs.read_all", interrupt)
    assert main(["summary", "out"]) == 130
    assert not "".join(capsys.readouterr())
