"""Maps as people see them: tables, the terminal, Markdown, and the pages in the repository."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kerneltest.extensions.lowering_map.model import (
    LoweringOutcome,
    LoweringResult,
    format_markdown,
    print_table,
    tabulate_maps,
)
from tests.extensions.lowering_map.sample_maps import EXP, MAP, with_exp, with_tpu

ROOT = Path(__file__).parents[3]
PAGES = ROOT / "reports/lowering"
HOSTILE = "</script><script>alert('x')</script><img src=x onerror=alert(1)>\"'&|`\\_[x](y)\n# z"
HOSTILE_MAP = replace(
    MAP,
    jax=HOSTILE,
    triton=HOSTILE,
    targets=(HOSTILE,),
    results=(LoweringResult(HOSTILE, HOSTILE, LoweringOutcome.ERROR, HOSTILE, (HOSTILE,), (HOSTILE,)),),
)


def test_in_markdown_a_message_stays_in_its_cell() -> None:
    page = format_markdown([HOSTILE_MAP])
    assert not re.search(r"(?<!\\)<(script|img)", page)
    (line,) = [line for line in page.split("## Errors")[1].splitlines() if line.startswith("| ") and "alert" in line]
    assert len(re.findall(r"(?<!\\)\|", line)) == 5


def test_the_markdown_page_has_the_changes_the_table_and_the_errors() -> None:
    page = format_markdown([MAP, replace(with_exp("error"), jax="1.2.4")])
    assert "| 1.2.4 | 1.2.3 | 3.12.1 | nothing | 0 | 4 | 2 | sm_90 gfx942 |" in page
    assert "## What started lowering from JAX 1.2.3 to JAX 1.2.4\n\nNothing.\n" in page
    assert "| `exp` | f32 f16 | all | lowers | error | why |" in page
    table = page.split("## Elementwise\n\n")[1].splitlines()[:3]
    assert table == ["| primitive | JAX 1.2.3 | JAX 1.2.4 |", "| --- | --- | --- |", "| `exp` | ✓ lowers | ✗ error |"]
    assert page.endswith("| `exp` | f32 f16 | all | why |\n")


def test_a_line_of_the_table_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    names = tuple(f"dtype_{number}" for number in range(40))
    results = (replace(EXP, dtypes=names), with_exp("error", dtypes=("float32",)).results[0])
    print_table([replace(MAP, results=results)])
    assert f"± lowers {' '.join(names)}" in capsys.readouterr().out


def test_targets_that_differ_are_told_apart() -> None:
    error = replace(with_exp("error").results[0], dtypes=("float16",), targets=("gfx942",))
    results = (replace(EXP, targets=("sm_90",)), replace(EXP, dtypes=("float32",), targets=("gfx942",)), error)
    apart = replace(MAP, results=results)
    assert MAP.agreeing_targets == (("sm_90", "gfx942"),)
    assert apart.agreeing_targets == (("sm_90",), ("gfx942",))
    _, ((_, _, entries),) = tabulate_maps([apart])
    assert entries == ["✓ lowers", "± lowers f32, error f16"]
    _, ((_, _, (entry, _)),) = tabulate_maps([apart, apart])
    assert entry == "± sm_90: lowers; gfx942: lowers f32, error f16"


def test_gpus_and_tpus_have_columns_of_their_own() -> None:
    maps = [with_tpu("error"), replace(with_tpu("lowers"), jax="1.2.4")]
    assert tabulate_maps(maps[:1])[0] == ["sm_90 gfx942", "tpu-v5e"]
    columns, rows = tabulate_maps(maps)
    assert columns == ["JAX 1.2.3, GPUs", "JAX 1.2.4, GPUs", "JAX 1.2.3, TPUs", "JAX 1.2.4, TPUs"]
    assert {name: entries for _, name, entries in rows} == {
        "exp": ["✓ lowers", "✓ lowers", "✗ error", "✓ lowers"],
        "sort": ["✗ unimplemented", "✗ unimplemented", "", ""],
        "blocks": ["", "", "✓ lowers", "✓ lowers"],
    }
    page = format_markdown(maps)
    assert "| `exp` | f32 f16 | TPUs | error | lowers | why |" in page
    (blocks,) = [part for part in page.split("\n## ") if part.startswith("Blocks")]
    assert "| primitive | JAX 1.2.3, TPUs | JAX 1.2.4, TPUs |" in blocks
    assert "| 1.2.3 | 1.2.3 | 3.12.1 | nothing | 1 | 2 | 0 | tpu-v5e |" in page


# --- The pages in the repository --------------------------------------------------------------------------------------


def test_log2_was_absent_and_lowers_since() -> None:
    _, *sections = (PAGES / "README.md").read_text(encoding="utf-8").split("\n## ")
    (began,) = [each for each in sections if "started" in each.splitlines()[0] and "| `log2` |" in each]
    assert began.startswith("What started lowering from JAX 0.10.2 to JAX 0.11.2\n")
    (row,) = [line for line in began.splitlines() if line.startswith("| `log2` |")]
    assert "| all | absent | lowers | this JAX has no lax.log2 |" in row


@pytest.mark.parametrize("name", ["README.md", "compiled.md", "tpu.md", "tpu-versions.md"])
def test_a_committed_page_names_no_folder(name: str) -> None:
    page = (PAGES / name).read_text(encoding="utf-8")
    assert len(page) > 10_000
    assert not re.search(r"(?<!:)//?(root|home|tmp|usr|work)/", page)
