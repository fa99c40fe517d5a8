"""A forked process has the path, variables, arguments, folder and exit status of a new one."""

import json
import sys
from pathlib import Path

import pytest

from tests import forked
from tests.plugins import PLUGINS

SEEN = """
import json, os, sys
packages = [path for path in sys.path if "site-packages" in path]
alike = [__name__, os.getcwd(), sys.argv, sys.path[:2], packages, os.environ.get("SEEN")]
print(json.dumps([*alike, "jax" in sys.modules]))
print("to standard error", file=sys.stderr)
sys.exit(3)
"""


def test_it_is_what_a_new_process_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seen.py").write_text(SEEN, encoding="utf-8")
    inside = next(path for path in sys.path if path.endswith("site-packages"))
    monkeypatch.setattr(sys, "path", [f"{inside}/ray/thirdparty_files", *sys.path])  # as an import of Ray leaves it
    monkeypatch.setenv("SEEN", "it")
    old, new = (run(tmp_path, "seen", "a word") for run in (forked.fresh, forked.run))
    assert (new.returncode, new.stderr) == (old.returncode, old.stderr) == (3, "to standard error\n")
    (*alike, imported), (*as_new, nothing) = json.loads(new.stdout), json.loads(old.stdout)
    assert alike == as_new
    assert (imported, nothing) == (True, False)


WORKER = """
import json, os, sys
from pathlib import Path

def test_it():
    known = [name for name in sys.modules if name.partition(".")[0] == "tests"]
    alike = [os.getcwd(), sys.argv[1:], os.environ["SEEN"], os.environ["PYTEST_XDIST_WORKER"], known]
    Path("seen.json").write_text(json.dumps([*alike, "jax" in sys.modules]))
    print("to standard error", file=sys.stderr)
    assert not os.environ["SEEN"]
"""


def test_a_worker_of_xdist_is_forked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_worker.py").write_text(WORKER, encoding="utf-8")
    monkeypatch.setenv("SEEN", "it")
    seen = []
    for run in (forked.fresh, forked.run):
        ended = run(tmp_path, "pytest", *PLUGINS, "-p", "no:cacheprovider", "-n", "1")
        assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stderr
        assert "to standard error" in ended.stdout
        seen.append(json.loads((tmp_path / "seen.json").read_text(encoding="utf-8")))
    (*as_new, nothing), (*alike, imported) = seen
    assert alike == as_new
    assert (imported, nothing) == (True, False)


def test_variables_that_imports_have_read_need_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seen.py").write_text(SEEN, encoding="utf-8")
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    *_, imported = json.loads(forked.run(tmp_path, "seen").stdout)
    assert not imported
    with pytest.raises(AssertionError, match="other variables"):
        forked.start(tmp_path, "seen")
