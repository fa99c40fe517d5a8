"""`kerneltest init` tells dims, blocks and options from a call, writes a file that collects, and says what to check."""

import functools
from pathlib import Path

import pytest

import kerneltest as kt
from benchmarks.init import OF_JAX, OF_THE_SUITES, Pairable, filled
from kerneltest.cli import main
from kerneltest.declare.arguments import ArrayArgument, Static, Tree
from kerneltest.declare.pairing import Pairing
from kerneltest.start.declaration import Declaration, execute_declaration, infer_declaration
from kerneltest.start.example_calls import (
    StartError,
    example_from_shapes,
    example_from_text,
    import_kernel,
    record_calls,
)
from tests.late import watched_closely
from tests.start.sample import TRACED, TRIED

__all__ = ["watched_closely"]

SAMPLE = "tests.start.sample"


@functools.cache
def _declared(name: str, call: str) -> Declaration:
    kernel = import_kernel(f"{SAMPLE}:{name}")
    return infer_declaration(kernel, [example_from_text(kernel, call)])


def _shapes(pairing: Pairing) -> str:
    return ", ".join(" ".join(map(str, leaf.shape)) for leaf in pairing.leaves.values())


# The kernel and a call of it: the shapes that are declared, and how long dims may be.
DIMS = {
    "a block": ("tailed", "f(jnp.ones(100))", "length", {"length": kt.dim(block=32)}),
    "whole blocks": ("whole", "f(jnp.ones(96))", "n", {"n": kt.dim(block=32, multiple_of=32)}),
    "a bound": ("capped", "f(jnp.ones(40))", "n", {"n": kt.dim(block=32, maximum=64)}),
    "tied by block specs": ("added", "f(jnp.ones(100), jnp.ones(100))", "n, n", {"n": kt.dim(block=32)}),
    "not tied by chance": ("product", "f(jnp.ones((8, 8)), jnp.ones((8, 8)))", "m n, n k", {}),
    "told apart by lengths": ("product", "f(jnp.ones((4, 6)), jnp.ones((6, 8)))", "m n, n k", {}),
    "rows": ("rows", "f(jnp.ones((8, 40)))", "m n", {"m": kt.dim(values=(1, 2, 5))}),
    "a least length": ("large", "f(jnp.ones(96))", "n", {"n": kt.dim(block=64, multiple_of=16, minimum=64)}),
    "a pytree": ("weighed", "f({'w': jnp.ones(8), 'b': jnp.ones(8)}, jnp.ones((4, 8)))", "n, n, m n", {}),
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("case", DIMS)
def test_dims_follow_from_traces_at_other_lengths(case: str) -> None:
    name, call, shapes, dims = DIMS[case]
    pairing = execute_declaration(_declared(name, call))
    assert _shapes(pairing) == shapes
    assert {name: pairing.dims[name] for name in dims} == dims
    assert all(dim == kt.dim() for name, dim in pairing.dims.items() if name not in dims)


def test_lengths_without_a_rule_are_few_and_near_the_example() -> None:
    pairing = execute_declaration(_declared("listed", "f(jnp.ones(64))"))
    lengths = pairing.dims["n"].values
    assert 64 in lengths
    assert len(lengths) <= 5
    assert max(lengths) <= 128


def test_a_grid_that_leaves_a_tail_out_is_not_taken_for_what_is_meant() -> None:
    made = _declared("floored", "f(jnp.ones(96))")
    assert made.dims == {"n": kt.dim(block=32)}
    assert any("the grid has n // 32 programs" in note for note in made.notes)


def test_lengths_that_go_together_are_kept_and_told() -> None:
    made = _declared("grouped", "f(jnp.ones(12), jnp.ones(4))")
    assert kt.dim(values=(4,)) in made.dims.values() or kt.dim(values=(12,)) in made.dims.values()
    assert any("declare valid combinations" in note for note in made.notes)


def test_options_are_static_and_defaults_are_left_out() -> None:
    pairing = execute_declaration(_declared("doubled", "f(jnp.ones(100), twice=False, block=32)"))
    assert {name: each for name, each in pairing.arguments.items() if isinstance(each, Static)} == {
        "twice": kt.static(False)
    }
    longer = _declared("doubled", "f(jnp.ones(100), block=16)")
    assert longer.outputs == ("(2 * n)",)
    assert longer.options == {"block": [16]}


def test_a_number_that_sets_a_length_is_a_dim() -> None:
    assert execute_declaration(_declared("counted", "f(100)")).arguments == {"n": kt.dim_size("n")}


@pytest.mark.slow
def test_integers_beside_floats_are_declared_by_their_names() -> None:
    made = _declared("judged", "f(jnp.ones((8, 32)), jnp.zeros(8, jnp.int32))")
    argument = execute_declaration(made).arguments["targets"]
    assert isinstance(argument, ArrayArgument)
    assert (argument.role, str(argument.bound)) == ("index", "n")
    assert any("targets: the role of its integers is inferred only from its name" in note for note in made.notes)


def test_integers_without_a_telling_name_are_the_smallest_until_their_author_says_more() -> None:
    made = _declared("picked", "f(jnp.ones((8, 4)), jnp.array([3]))")
    argument = execute_declaration(made).arguments["which"]
    assert isinstance(argument, ArrayArgument)
    assert (argument.domain.low, argument.domain.high) == (0, 0)
    assert any("in the example, from 3 to 3" in note and "kt.indices(" in note for note in made.notes)


def test_what_a_call_leaves_out_is_a_comment() -> None:
    source = _declared("judged", "f(jnp.ones((8, 32)), jnp.zeros(8, jnp.int32))").source()
    assert "    # reverse=kt.static(False, True),\n    # h0=kt.static(None),\n" in source


def test_backends_are_those_for_which_a_kernel_without_a_language_lowers() -> None:
    assert _declared("rows", "f(jnp.ones((8, 40)))").backends == ()
    assert _declared("judged", "f(jnp.ones((8, 32)), jnp.zeros(8, jnp.int32))").backends == ("interpret", "gpu")


@pytest.mark.parametrize(("given", "raw"), [("jax.random.key(0)", False), ("jax.random.PRNGKey(0)", True)])
def test_keys_are_keys(given: str, raw: bool) -> None:
    made = _declared("noisy", f"f(jnp.ones(100), {given})")
    assert execute_declaration(made).arguments["key"] == kt.key(raw=raw)


# The kernel, a call, and the shapes that are declared.
GUESSED = {
    "a kernel that asks for its TPU": ("asking", "f(jnp.ones(2048))", "n"),
    "outputs that follow their inputs": ("moved", "f(jnp.ones(100), jnp.ones(100))", "n, n"),
    "an axis of which a part is read": ("pair_of", "f(jnp.ones(100), jnp.ones((100, 2)))", "n, n 2"),
    "many axes of one length": ("tied", "f(*[jnp.ones((16,) * 4)] * 3)", "b h m 16, b n m 16, b n m 16"),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("case", GUESSED)
def test_dims_are_found_with_few_traces(case: str) -> None:
    name, call, shapes = GUESSED[case]
    del TRACED[:]
    assert _shapes(execute_declaration(_declared(name, call))) == shapes
    assert len(TRACED) < 500


@pytest.mark.usefixtures("watched_closely")
def test_when_the_time_is_over_the_file_has_what_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["init", f"{SAMPLE}:slow", "--shapes", "x=100", "-o", str(tmp_path)]
    assert main([*command, "--limit", "1e-9"]) == 2
    assert "give a larger --limit" in capsys.readouterr().err
    TRIED.clear()
    assert main([*command, "--limit", "600"]) == 0
    assert "check n: these lengths were tried before the time was over" in capsys.readouterr().out
    assert "dims=dict(n=kt.dim(values=(" in (tmp_path / "test_slow.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("option", ["--call", "--watch"])
def test_the_time_of_code_that_calls_the_kernel_is_limited(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (script := tmp_path / "script.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    given = str(script) if option == "--watch" else "f(__import__('time').sleep(60))"
    assert main(["init", f"{SAMPLE}:whole", option, given, "-o", str(tmp_path), "--limit", "0.1"]) == 2
    assert "the limit of 0.1 s has passed; give a larger --limit" in capsys.readouterr().err


def test_dtypes_are_those_of_the_call() -> None:
    made = _declared("tailed", "f(jnp.ones(100, jnp.bfloat16))")
    assert execute_declaration(made).arguments["x"].dtypes == ("bfloat16",)  # type: ignore[union-attr]
    assert any("can also be traced in float32 and float16" in note for note in made.notes)


def test_a_tree_is_written_as_it_is_given() -> None:
    tree = execute_declaration(_declared("weighed", DIMS["a pytree"][1])).arguments["params"]
    assert isinstance(tree, Tree)
    assert sorted(tree.branches) == ["b", "w"]


def test_two_calls_tell_axes_apart(tmp_path: Path) -> None:
    kernel = import_kernel(f"{SAMPLE}:product")
    script = tmp_path / "script.py"
    calls = "".join(f"product(jnp.ones(({m}, {k})), jnp.ones(({k}, {n})))\n" for m, k, n in ((8, 8, 8), (4, 8, 2)))
    script.write_text(f"import jax.numpy as jnp\nfrom {SAMPLE} import product\n{calls}raise SystemExit(3)\n")
    examples = record_calls(kernel, str(script), lambda: False)
    assert [each.leaves["y"].shape for each in examples] == [(8, 8), (8, 2)]
    assert _shapes(execute_declaration(infer_declaration(kernel, examples))) == "m n, n k"
    assert import_kernel(f"{SAMPLE}:product").function is kernel.function  # it was put back


def test_a_test_is_watched_too(tmp_path: Path) -> None:
    kernel = import_kernel(f"{SAMPLE}:tailed")
    test = tmp_path / "test_it.py"
    test.write_text(f"import numpy as np\nfrom {SAMPLE} import tailed\ndef test_it():\n    tailed(np.ones(50, 'f4'))\n")
    (example,) = record_calls(kernel, f"{test}::test_it", lambda: False)
    assert example.leaves["x"].shape == (50,)
    with pytest.raises(StartError, match="never calls whole"):
        record_calls(import_kernel(f"{SAMPLE}:whole"), f"{test}::test_it", lambda: False)


REFUSED = {
    "no such module": ("nowhere:f", "x=8", "cannot be imported"),
    "no such function": (f"{SAMPLE}:nothing", "x=8", "it has"),
    "no function named": (SAMPLE, "x=8", "give MODULE:FUNCTION"),
    "no such parameter": (f"{SAMPLE}:tailed", "z=8", "has no parameter 'z'"),
    "a parameter without a shape": (f"{SAMPLE}:product", "x=8x8", "also needs y"),
    "no shape": (f"{SAMPLE}:tailed", "x=8*8", "is not a shape"),
    "a call that raises": (f"{SAMPLE}:whole", "x=33", "whole blocks alone"),
    "no Pallas call": (f"{SAMPLE}:plain", "x=8", "reaches no Pallas call"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_paired_is_told_with_the_reason(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel, shapes, told = REFUSED[case]
    assert main(["init", kernel, "--shapes", shapes, "-o", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["init", f"{SAMPLE}:tailed", "--shapes", "x=100", "-o", str(tmp_path)]
    assert main(command) == 0
    path = tmp_path / "test_tailed.py"
    path.write_text("# mine\n", encoding="utf-8")
    assert main(command) == 2
    assert "already exists" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == "# mine\n"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("pairable", [*OF_THE_SUITES[:2], OF_JAX[0], OF_JAX[-1]], ids=lambda each: each.kernel)
def test_a_pairing_passes_once_its_oracle_is_filled_in(pairable: Pairable) -> None:
    result = filled(pairable, backends=["interpret"])
    assert result.ok, result.findings[0].message


def test_the_text_of_a_call_must_call_the_kernel() -> None:
    kernel = import_kernel(f"{SAMPLE}:tailed")
    with pytest.raises(StartError, match="does not call tailed"):
        example_from_text(kernel, "jnp.ones(8)")
    with pytest.raises(StartError, match="raises NameError"):
        example_from_text(kernel, "f(nobody)")
    assert example_from_shapes(kernel, "x=8x1", "x=int8").leaves["x"].dtype.name == "int8"


@pytest.mark.usefixtures("watched_closely")
def test_a_session_that_is_watched_ends_with_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tests := tmp_path / "test_many.py").write_text(
        "import pytest, time\nfrom pathlib import Path\nfrom tests.late import end_limit\n"
        f"ran = Path({str(tmp_path / 'ran')!r})\nran.touch()\n"
        "@pytest.mark.parametrize('i', range(40))\ndef test_it(i):\n"
        "    ran.write_text(ran.read_text() + 'x')\n"
        "    if ran.read_text() == 'xxx':\n        end_limit()\n        time.sleep(9999)\n",
        encoding="utf-8",
    )
    assert main(["init", f"{SAMPLE}:tailed", "--watch", str(tests), "-o", str(tmp_path), "--limit", "600"]) == 2
    assert "give a larger --limit" in capsys.readouterr().err
    assert (tmp_path / "ran").read_text() == "xxx"
