"""`kerneltest audit` lists what reaches a Pallas call and has no pairing, without importing the kernels itself."""

from pathlib import Path

import pytest

from kerneltest.cli import main
from kerneltest.extensions.audit.call_graph import read_program
from kerneltest.start.command_progress import CommandProgress
from tests.late import watched_closely

__all__ = ["watched_closely"]

CALL = "pl.pallas_call(body, out_shape=x)(x)"
HEAD = """import functools
import jax
from jax.experimental import pallas as pl
def body(x_ref, o_ref): o_ref[...] = x_ref[...]
"""

# The source of `ops.py`: the names in it that reach a Pallas call.
REACHING = {
    "directly": (f"def f(x): return {CALL}\ndef g(x): return x\n", {"f"}),
    "through another": (f"def _f(x): return {CALL}\ndef g(x): return _f(x)\n", {"_f", "g"}),
    "by reference": (f"def _f(x): return {CALL}\ndef g(x): return jax.vmap(_f)(x)\n", {"_f", "g"}),
    "decorated": (f"@jax.jit\ndef f(x): return {CALL}\n", {"f"}),
    "a partial": (f"def f(x, y=1): return {CALL}\ng = functools.partial(f, y=2)\n", {"f", "g"}),
    "a method": (f"class Layer:\n    def _run(self, x): return {CALL}\n    def apply(self, x): return self._run(x)\n",
                 {"Layer._run", "Layer.apply"}),
    "a gradient": (
        f"@jax.custom_vjp\ndef f(x): return x\ndef _forward(x): return {CALL}, x\ndef _backward(k, g): return g\n"
        "f.defvjp(_forward, _backward)\n",
        {"f", "_forward"},
    ),
    "another's kernel": ("def kernel(x): return x\ndef f(x): return kernel(x)\n", set()),
    "Mosaic GPU's kernel": (
        "from jax.experimental.pallas import mosaic_gpu as plgpu\ndef f(x): return plgpu.kernel(body)(x)\n", {"f"}
    ),
    "what a constructor sets": (
        "class Layer:\n    def __init__(self): self.call = pl.pallas_call(body)\n"
        "    def __call__(self, x): return self.call(x)\n",
        {"Layer.call", "Layer.__call__"},
    ),
    "a module that seems to import itself": (
        f"from ops.a.b import K as a\ndef f(x): return {CALL}\ndef k(x): return a(x)\n", {"f"}
    ),
    "a parameter of that name": (f"def f(x): return {CALL}\ndef g(f): return f(1)\n", {"f"}),
    "no Python": ("def f(:\n", set()),
}  # fmt: skip


@pytest.mark.parametrize("case", REACHING)
def test_what_reaches_a_pallas_call(case: str, tmp_path: Path) -> None:
    source, names = REACHING[case]
    (tmp_path / "ops.py").write_text(HEAD + source, encoding="utf-8")
    assert {place.name for place in read_program([tmp_path], CommandProgress()).kernels} == names


def test_the_scripts_of_a_report_are_no_sources(tmp_path: Path) -> None:
    for name in ("ops.py", "reports/new/cases/reproduce_f.py", "reports/notes/g.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{HEAD}def {Path(name).stem}(x): return {CALL}\n", encoding="utf-8")
    (tmp_path / "reports/new/.kerneltest").touch()
    assert {place.name for place in read_program([tmp_path], CommandProgress()).kernels} == {"ops", "g"}


SUM = " + ".join(["x"] * 20_000)
DEEP = {
    "brackets": (f"def f(x): return {'(' * 150}{CALL}{')' * 150}\n", True),
    "a chain of elif": (
        "".join(f"{'el' if i else ''}if FLAG == {i}:\n    def f{i}(x): return 1\n" for i in range(600))
        + f"else:\n    def f(x): return {CALL}\n",
        True,
    ),
    "more brackets than Python reads": (f"def f(x): return {'(' * 5000}{CALL}{')' * 5000}\n", False),
    "a sum longer than Python reads": (f"def f(x): return {CALL} + {SUM}\n", False),
    "operators": (f"def f(x): return {'-' * 50_000}{CALL}\n", False),
    "a null byte": (f"def f(x): return {CALL}\0\n", False),
}


@pytest.mark.parametrize("case", DEEP)
def test_deeply_nested_source_is_read_or_said_to_be_unread(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, read = DEEP[case]
    (tmp_path / "ops.py").write_text(HEAD + source, encoding="utf-8")
    (tmp_path / "other.py").write_text(f"{HEAD}def other(x): return {CALL}\n", encoding="utf-8")
    assert main(["audit", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "other.py" in shown
    assert (" f " in shown) is read
    assert ("not read: " in shown) is not read


def test_names_are_followed_through_packages(tmp_path: Path) -> None:
    files = {
        "src/lib/__init__.py": "from .api import *\n",
        "src/lib/api.py": "from lib.kernels.deep import deep as _deep\ndef run(x): return _deep(x)\n",
        "src/lib/kernels/__init__.py": "",
        "src/lib/kernels/deep.py": f"{HEAD}def deep(x): return {CALL}\n",
        "user.py": "import lib\ndef use(x): return lib.run(x)\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert {place.name for place in read_program([tmp_path], CommandProgress()).kernels} == {"deep", "run", "use"}


OPS = f"""{HEAD}
def _copy(x):
    return {CALL}

def paired(x):
    return _copy(x)

def below(x):
    return _copy(x)

def above(x):
    return below(x)

def forgotten(x):
    return _copy(x)

def outermost(x):
    return forgotten(x)
"""
PAIR = """import kerneltest as kt
from ops import above, paired

def pair(kernel):
    return kt.oracle_for(kernel, x=kt.array("n", "float32"))(lambda_free)

def lambda_free(x):
    return x

first = pair(paired)
second = pair(lambda x: above(x))
"""


def _audited(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    code = main(["audit", "."])
    return code, capsys.readouterr().out


def test_each_function_is_paired_or_stood_for_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ops.py").write_text(OPS, encoding="utf-8")
    (tmp_path / "test_ops.py").write_text(PAIR, encoding="utf-8")
    code, told = _audited(tmp_path, capsys, monkeypatch)
    assert code == 1
    assert [line.split(maxsplit=1) for line in told.splitlines()] == [
        ["ops.py:9", "paired     paired"],
        ["ops.py:12", "below      reached through above, which is paired"],
        ["ops.py:15", "above      paired"],
        ["ops.py:18", "forgotten  reached through outermost, which is not paired"],
        ["ops.py:21", "outermost  not paired"],
        ["5", "functions reach a Pallas call; 1 is unpaired"],
    ]


USERS = {
    "ops.py": OPS,
    "train.py": """import ops
class Trainer:
    def __init__(self, x): self.step = ops.below(x)
    def run(self, x): return ops.below(self.load(x))
    def load(self, x): return ops.forgotten(x)
def main(arguments): Trainer(arguments).run(ops.outermost(arguments))
def demonstrate(): return ops.outermost(1)
""",
    "tests/reference.py": "import ops\ndef reference(x): return ops.above(x)\n",
    "test_plain.py": "import nowhere_at_all\n",
}


def test_what_only_uses_kernels_is_not_listed_and_plain_tests_are_not_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in USERS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    _, told = _audited(tmp_path, capsys, monkeypatch)
    assert {line.split()[1] for line in told.splitlines()[:-1]} == {
        "paired", "below", "above", "forgotten", "outermost"
    }  # fmt: skip
    assert {line.split(maxsplit=2)[1] for line in told.splitlines() if line.endswith("  not paired")} == {
        "paired", "above", "outermost"
    }  # fmt: skip


def test_a_syntax_error_has_its_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.py").write_text("x = 1\ndef f(:\n", encoding="utf-8")
    (tmp_path / "test_bad.py").write_text("import kerneltest\nimport bad\n", encoding="utf-8")
    (tmp_path / "test_broken.py").write_text("import kerneltest\nimport nowhere_at_all\n", encoding="utf-8")
    code, told = _audited(tmp_path, capsys, monkeypatch)
    assert code == 1
    bad, broken, unread, *_ = told.splitlines()
    assert (bad, unread) == (
        "not collected: test_bad.py: bad.py:2: invalid syntax",
        "not read: bad.py:2: invalid syntax",
    )
    assert broken.startswith("not collected: test_broken.py: ")
    assert "nowhere_at_all" in broken


@pytest.mark.usefixtures("watched_closely")
def test_the_time_of_an_audit_is_limited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = "import kerneltest, time\nfrom tests.late import end_limit\nend_limit()\ntime.sleep(9999)\n"
    (tmp_path / "test_slow.py").write_text(slow, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["audit", ".", "--limit", "600"]) == 1
    assert "not collected: test_slow.py: " in (told := capsys.readouterr().out)
    assert "the limit of 600 s has passed" in told
    assert main(["audit", ".", "--limit", "1e-9"]) == 1
    assert "not read: 1 files" in capsys.readouterr().out


def test_a_path_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "nowhere"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
