"""The docs are true: their examples run, their messages are produced, their tables name what the code has."""

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import kerneltest as kt
from kerneltest.backends import lowering_errors
from kerneltest.backends.registry import ALL, REGISTRY, resolve, select_ids
from kerneltest.core.targets import TARGETS, TPUS
from kerneltest.core.verdicts import Verdict, worst
from kerneltest.declare.kinds.base import DEFAULT_FLOATS, DEFAULT_INTEGERS
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.planning import plan_pairing
from kerneltest.execute.runner import run_item
from kerneltest.execute.settings import RunSettings, known_settings
from kerneltest.plan.families import FAMILIES
from kerneltest.plan.signatures import boundary_lengths
from kerneltest.records.record_files import read_plan, read_records
from kerneltest.triage.run_comparison import MEANING as CHANGES
from kerneltest.triage.run_comparison import REGRESSIONS
from tests import forked
from tests.plugins import PLUGINS
from tools.walk_readme import clean_environment, read_blocks, walk, without_installation

ROOT = Path(__file__).parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "reports").rglob("README.md")])
}
README, GUIDE, CI, API, ARCHITECTURE = (
    PAGES[name] for name in ("README.md", "docs/guide.md", "docs/ci.md", "docs/api.md", "docs/architecture.md")
)


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    registries: list[dict[Any, Any]] = [FAMILIES, INVARIANTS, REGISTRY, lowering_errors._HINTS]
    before = [dict(each) for each in registries]
    yield
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


def _blocks(page: str) -> list[tuple[str, str]]:
    """The Python blocks of a page: the file that each names in its first line, and its source."""
    blocks = [text for language, text in _fenced(page) if language == "python"]
    return [((re.match(r"# (\S+\.py)\n", block) or ["", Path(page).stem + ".py"])[1], block) for block in blocks]


def _fenced(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return re.findall(r"^```(\w*)\n(.*?)^```", PAGES[page], re.DOTALL | re.MULTILINE)


def _executed(page: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module in which all Python blocks of a page have run, in order."""
    module = types.ModuleType(Path(page).stem)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for file, source in _blocks(page):
        exec(compile(source, file, "exec"), module.__dict__)
    return module


def _shown(page: str, start: str) -> list[str]:
    """The lines of the text block of a page that starts so."""
    (block,) = [text for _, text in _fenced(page) if text.startswith(start)]
    return block.splitlines()


def _words(text: str) -> str:
    return " ".join(text.split())


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(folder, "pytest", *PLUGINS, "-p", "no:cacheprovider", *arguments)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) < 90


@pytest.mark.slow
def test_the_readme_works_by_literal_paste(tmp_path: Path) -> None:
    environment = clean_environment(Path(sys.executable).parent) | {
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "-p kerneltest -p no:randomly",
    }
    run, again = walk(without_installation(read_blocks("README.md")), tmp_path, environment)
    assert (run.code, run.lacking) == (1, ()), run.output
    assert " 8 failed" in run.output  # a test each for two interpreters, two simulators and four targets
    assert again.code == 1, again.output
    assert "special_mismatch" in again.output
    assert len(run.output.splitlines()) <= 60
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.slow
def test_the_guide_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = _executed("docs/guide.md", monkeypatch)
    assert guide.result.ok
    assert guide.result.not_applicable == {}
    assert "rocm" in guide.result.unavailable or jax.default_backend() == "gpu"
    guide.test_add_conforms()
    assert kt.check(guide.above_oracle, depth="quick").ok
    rejected = [r for r in kt.check(guide.copied, backends=["lower:sm_90"]).records if r.group == "rejects"]
    assert [(r.family, r.verdict) for r in rejected] == [
        ("rejects_no_free_slot", "pass"),
        ("rejects_part_of_a_block", "pass"),
    ]
    (message,) = _shown("docs/guide.md", "kernel 'above'")
    with pytest.raises(kt.DeclarationError, match=re.escape(message)):
        kt.oracle_for(guide.above, x=kt.array("n"), tolerance=kt.array("n"))


@pytest.mark.slow
def test_the_guide_shows_the_smallest_drawn_case(monkeypatch: pytest.MonkeyPatch) -> None:
    pairing = _executed("docs/guide.md", monkeypatch).relu_oracle
    planned = plan_pairing(
        pairing, "guide.py::relu_oracle", resolve(["simulate:sm_90"]), RunSettings(depth="standard", fuzz=200)
    )
    (item,) = [item for item in planned.items if item.group.name == "fuzz"]
    first = next(o.record for o in run_item(item, Cache()) if o.record.verdict.is_finding)
    told = f"{first.verdict}: {first.family}, {first.signature} {first.message}"
    assert _words(told) == _words(" ".join(_shown("docs/guide.md", "special_mismatch: drawn")))


@pytest.mark.slow
def test_the_guide_shows_what_pytest_says(tmp_path: Path) -> None:
    suite = str(ROOT / "examples/test_broken.py")
    options = ("--kt-report", "out", "--kt-backends", "interpret,cuda")
    shown = _pytest(tmp_path, suite, "-k", "add and float32 or add and cuda", *options)
    lines = {line.strip().replace(f"{ROOT}/", "") for line in shown.stdout.splitlines()}
    assert {line.strip() for line in _shown("docs/guide.md", "1  unwritten elements")} <= lines
    if "cuda" in read_plan(tmp_path / "out").unavailable:
        (absent,) = _shown("docs/guide.md", "cuda was requested")
        assert absent in shown.stdout


def test_the_page_on_bits_shows_what_pytest_says(tmp_path: Path) -> None:
    ((file, source),) = _blocks("docs/same-bits.md")
    (tmp_path / file).write_text(source, encoding="utf-8")
    finished = _pytest(tmp_path, "--kt-backends", "interpret", "--kt-depth", "quick")
    assert _words(" ".join(_shown("docs/same-bits.md", "1  bits that"))) in _words(finished.stdout)


@pytest.mark.parametrize(("pairing", "shown"), [("summed", "race: p"), ("tops", "uninitialised")])
def test_the_simulator_finds_what_its_page_shows(pairing: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _executed("docs/how-backends-work.md", monkeypatch)
    result = kt.check(getattr(module, pairing), backends=["simulate:sm_90"], depth="quick")
    wanted = _words(" ".join(_shown("docs/how-backends-work.md", shown)))
    assert any(wanted in _words(f"{f.verdict}: {f.family}, {f.signature} {f.message}") for f in result.findings)
    interpreted = kt.check(getattr(module, pairing), depth="quick")
    assert {finding.family for finding in interpreted.findings} <= {"poisoned_padding"}
    told = _words(" ".join(_shown("docs/how-backends-work.md", "out_of_bounds: an index")))
    assert told == f"{module.faults[0].verdict}: {module.faults[0].message}"
    assert lowering_errors.lowering_hint("cumlogsumexp")


def test_the_worked_tolerance_is_what_comes_out() -> None:
    worked = _loaded("worked_tolerance")
    page = PAGES["docs/tolerances.md"]
    shown = [text.splitlines() for _, text in _fenced("docs/tolerances.md")]
    cpu, gpu = worked.XLA_CPU, worked.NVIDIA
    told = [list(lines) for lines in (worked.oracle(), worked.bound(cpu), worked.shares(cpu))]
    assert [block for block in shown if block in told] == told
    *_, last = worked.bound(gpu)
    assert f"The bound is {last.split()[-1]}," in page
    computed = page.partition("| computed by |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| (\d\S*) \| (\S+) \|$", computed, re.MULTILINE)
    table = {name: [float(one), float(two)] for name, one, two in rows}
    for name, used in worked.machines().items():  # versions of JAX differ in a rounding
        assert used == pytest.approx(table.pop(name), rel=0.5)
    assert not table


@pytest.mark.slow
def test_the_worked_questions_are_what_comes_out() -> None:
    def words(text: str) -> str:  # machines differ in a rounding
        return re.sub(r"-?\d[\d.,]*(e[+-]\d+)?", "N", text)

    worked = _loaded("worked_questions")
    shown = [words(text.strip()) for _, text in _fenced("docs/tolerances.md") if "elements wrong" in text]
    assert worked.findings(worked.right) == []
    kernels = (worked.another_epsilon, worked.in_16_bits, worked.by_moments)
    assert [words(worked.findings(kernel)[0]) for kernel in kernels] == shown


def test_every_page_with_python_is_run() -> None:
    # Those of docs/production-sizes.md are run by tests/execute/test_production.py, those of docs/declarations.md by
    # tests/test_declarations.py, that on TPUs also by tests/backends/tpu/test_page.py, those of
    # docs/api.md by tests/test_api_examples.py, those of docs/getting-started.md by
    # tests/start/test_getting_started.py, and those of docs/mutation.md by tests/extensions/mutation/test_operators.py.
    executed = {
        "README.md",
        "docs/api.md",
        "docs/guide.md",
        "docs/mutation.md",
        "docs/declarations.md",
        "docs/extending.md",
        "docs/getting-started.md",
        "docs/how-backends-work.md",
        "docs/production-sizes.md",
        "docs/same-bits.md",
    }
    assert {page for page in PAGES if _blocks(page)} == executed


@pytest.mark.slow
def test_what_a_conftest_registers_is_in_the_report(tmp_path: Path) -> None:
    for file, source in _blocks("docs/extending.md"):
        with (tmp_path / file).open("a", encoding="utf-8") as written:
            written.write(source)
    finished = _pytest(tmp_path, "--kt-backends", "interpret*", "--kt-report", "report", "--kt-depth", "quick")
    assert finished.returncode == 0, finished.stdout
    records = list(read_records(tmp_path / "report"))
    ended = {(r.family, r.backend) for r in records if r.verdict == "pass" and r.compared}
    assert {(f, b) for f in ("zero_block", "commutes") for b in ("interpret", "interpret-optimised")} <= ended
    assert {"absolute(1e-05)", "by_table(add)"} <= {r.tolerance for r in records}


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", re.findall(r"^\| `(\w+)` \|.+?\| (\S+) \| (\S+) \|$", PAGES["docs/report.md"], re.MULTILINE)
)
def test_the_broken_examples_end_as_the_page_on_the_report_says(row: tuple[str, str, str]) -> None:
    from examples import test_broken

    name, *shown = row
    for backend, verdict in zip(("interpret", "simulate:sm_90"), shown, strict=True):
        records = kt.check(getattr(test_broken, name), backends=[backend], depth="quick").records
        assert worst(record.verdict for record in records) == verdict.strip("`*")
        if name == "row_sums" and backend != "interpret":
            told = "sums stop growing at about 256: they are accumulated in bfloat16"
            assert f"`{told}`" in GUIDE
            assert any(told in record.message for record in records)


def test_pages_name_only_options_that_exist() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "action.yml", ROOT / "Makefile"]
    named = {option for page in pages for option in re.findall("--kt-[a-z][a-z-]*", page.read_text(encoding="utf-8"))}
    assert named <= {setting.option for setting in known_settings()}


def test_the_guide_has_every_argument_of_a_pairing() -> None:
    parameters = inspect.signature(kt.oracle_for).parameters.values()
    table = GUIDE.split("| option | default | |")[1].split("\n\n")[0]
    named = set(re.findall(r"`(\w+)=`", table))
    assert named == {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}


def test_the_guide_has_every_verdict_and_every_invariant() -> None:
    verdicts = GUIDE.split("| verdict | meaning |")[1].split("\n\n")[0]
    named = [
        word for row in re.findall(r"^\| (`.+?) \|", verdicts, re.MULTILINE) for word in re.findall(r"`(\w+)`", row)
    ]
    assert sorted(named) == sorted(Verdict)
    invariants = GUIDE.split("| family | the call | what it finds |")[1].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", invariants, re.MULTILINE) == list(INVARIANTS)


def test_the_guide_knows_lengths_and_dtypes() -> None:
    lengths = sorted(boundary_lengths(kt.dim(block=64)))
    assert f"lengths are then {', '.join(map(str, lengths[:-1]))} and {lengths[-1]}." in _words(GUIDE)
    for names in (DEFAULT_FLOATS, DEFAULT_INTEGERS):
        assert f"is {', '.join(names[:-1])} and {names[-1]}." in _words(GUIDE)


def test_the_page_on_ci_has_every_kind_of_change_and_what_fails() -> None:
    rows = re.findall(r"^\| (`.+?) \| (yes)? *\|", CI, re.MULTILINE)
    said = {kind: answer for kinds, answer in rows for kind in re.findall(r"`(.+?)`", kinds)}
    assert {kind for kind in CHANGES if said.get(kind)} == set(REGRESSIONS)
    assert all(f"`{kind}`" in CI for kind in CHANGES)


def test_the_page_on_backends_has_every_one() -> None:
    page = PAGES["docs/backends.md"]
    rows = " ".join(re.findall(r"^\| (`.+?) \|", page, re.MULTILINE))
    assert set(re.findall(r"`(.+?)`", rows)) == {
        re.sub(rf":(xla-)?({'|'.join([*TARGETS, *TPUS])})$", r":\1TARGET", each) for each in REGISTRY
    }
    gpus, tpus = ([f"`{target}`" for target in targets] for targets in (TARGETS, TPUS))
    named = f"TARGET is {', '.join(gpus[:-1])} or {gpus[-1]}; for `lower` and `compile` also"
    assert f"{named} {', '.join(tpus[:-1])} or {tpus[-1]}." in _words(page)
    lowered = "`lower` for `sm_90`, `gfx942`, `gfx1151` and `tpu-v5e`"
    tiers = ("three interpreters", lowered, "`simulate` for `sm_90` and `gfx942`")
    assert f"`all` stands for the {', '.join(tiers)}, `cuda`, `rocm` and `tpu`." in _words(page)
    assert set(select_ids([ALL])) == {
        "interpret", "interpret-mosaic-gpu", "interpret-tpu", "lower:sm_90", "lower:gfx942", "lower:gfx1151",
        "lower:tpu-v5e", "simulate:sm_90", "simulate:gfx942", "cuda", "rocm", "tpu",
    }  # fmt: skip


def test_the_map_of_the_architecture_is_true() -> None:
    rooms = {path.parent.name for path in (ROOT / "kerneltest").glob("*/__init__.py")}
    assert set(re.findall(r"^\*\*(\w+)\*\* ", ARCHITECTURE, re.MULTILINE)) == rooms
    drawn = set(re.findall(r"\b\d+ (\w+)", ARCHITECTURE.split("```")[1])) | {"core", "pytest_plugin", "start"}
    assert drawn == rooms
    files = re.findall(r"`([\w/]+/[\w.]+\.\w+)`", ARCHITECTURE)
    assert len(files) > 10
    assert [file for file in files if not (ROOT / "kerneltest" / file).exists()] == []


def test_each_promise_names_a_test() -> None:
    rows = re.findall(r"^\| .+ \| (`.+`) \|$", PAGES["reports/reliability/README.md"], re.MULTILINE)
    promises = []
    for row in rows:  # of a test that is in the same file as the one before, only the name
        file = ""
        for named, name in re.findall(r"`([\w/.]*)(?:::(\w+))?`", row):
            file = named or file
            promises.append((file, name))
    assert len(promises) >= len(rows) > 100
    tests = {file: (ROOT / "tests" / file).read_text("utf-8") for file, _ in promises}
    assert [(file, name) for file, name in promises if name and f"\ndef {name}(" not in tests[file]] == []


def test_the_reference_has_every_public_name() -> None:
    assert [name for name in kt.__all__ if f"::: kerneltest.{name}\n" not in API] == []


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_says_of_the_api_exists(page: str) -> None:
    for name in set(re.findall(r"\bkt\.((?:\w+\.)?\w+)", PAGES[page])):
        found: Any = kt
        for part in name.split("."):
            found = getattr(found, part)


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_changelog_is_short() -> None:
    assert len(PAGES["CHANGELOG.md"].split()) <= 1_000


def test_the_docs_are_short() -> None:
    words = {path: len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").rglob("*.md")}
    assert sum(words.values()) <= 35_000


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page, text in PAGES.items() for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    broken = []
    for page, link in links:
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if ":" in link:
            continue
        headings = target.suffix == ".md" and target.exists() and _anchors(target.read_text(encoding="utf-8"))
        if not target.exists() or (anchor and headings and anchor not in headings):
            broken.append((page, link))
    assert len(links) > 50
    assert broken == []


@pytest.mark.parametrize(
    ("source", "link", "on_site"),
    [
        ("README.md", "docs/guide.md#invariants", "guide.md#invariants"),
        ("README.md", "docs/images/finding.png", "images/finding.png"),
        ("README.md", "CONTRIBUTING.md", "contributing.md"),
        ("docs/scaling.md", "images/scaling.svg", "images/scaling.svg"),
        ("docs/guide.md", "../README.md", "index.md"),
        ("docs/guide.md", "#running", "#running"),
        ("docs/guide.md", "https://example.org/a", "https://example.org/a"),
        (
            "docs/report.md",
            "../examples/test_broken.py",
            "https://github.com/kerneltest/kerneltest/blob/main/examples/test_broken.py",
        ),
        ("README.md", "kernels/", "https://github.com/kerneltest/kerneltest/tree/main/kernels"),
    ],
)
def test_the_site_keeps_links_or_sends_them_to_the_repository(source: str, link: str, on_site: str) -> None:
    assert _loaded("hooks").site_link(source, link) == on_site


def test_a_link_that_leads_nowhere_fails_the_site() -> None:
    with pytest.raises(FileNotFoundError, match=r"docs/adding\.md"):
        _loaded("hooks").site_link("README.md", "docs/adding.md")


def _loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_committed_page_is_small() -> None:
    assert (ROOT / "reports/h200/report.html").stat().st_size <= 640_000


def test_the_first_lines_of_a_room_name_what_is_there() -> None:
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "kerneltest").rglob("*.py")}
    known = set(re.findall(r"^(?:class|def) (\w+)", "\n".join(sources.values()), re.MULTILINE)) | {"kerneltest"}
    known |= {path.name for path in (ROOT / "kerneltest").iterdir()}
    lacking = []
    for path, source in ((path, source) for path, source in sources.items() if path.name == "__init__.py"):
        named = re.findall(r"`([A-Za-z_]+)`", ast.get_docstring(ast.parse(source)) or "")
        lacking += [
            (path, name) for name in named if name not in known | {other.stem for other in path.parent.iterdir()}
        ]
    assert lacking == []
