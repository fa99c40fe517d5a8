"""Seconds from an edit to a verdict, as multiples of a plain test: `python benchmarks/save_loop.py FOLDER`.

Three files, each right and with one bug: a softmax, a matmul with an activation, and causal attention. Each row is a
whole command without a cache. `plain` is a pytest file with one jitted call and `assert_allclose`. All rows of a file
run in turn, so many rounds, and each ratio is to the plain test of the same round.

`--quick` runs the softmax on `interpret` at `quick`, right and broken, once. `--no-bytecode` forbids Python to write
compiled modules, as many images do. FOLDER gets `save_loop.json` and its table, `save_loop.md`. Needs no GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parent.parent
INTERPRET = ("--kt-backends", "interpret")
ROWS = {
    "interpret, quick": (*INTERPRET, "--kt-depth", "quick"),
    "interpret, standard": (*INTERPRET, "--kt-depth", "standard"),
    "all tiers, quick": ("--kt-depth", "quick"),
    "all tiers, standard": ("--kt-depth", "standard"),
    "all tiers, standard, two workers": ("--kt-depth", "standard", "-n", "2"),
}
PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Sample:
    """A kernel as its author tests it.

    Attributes:
      name: of the module in `kernels/` that holds it.
      kernel: its name in there.
      oracle: the lines of the oracle's body.
      parameters: of the oracle.
      pairing: the arguments of `kt.oracle_for` after the kernel.
      arguments: of the call in the plain test.
      right, broken: a text in the module, and the bug that takes its place.
    """

    name: str
    kernel: str
    oracle: str
    parameters: str
    pairing: str
    arguments: str
    right: str
    broken: str

    def write(self, folder: Path, *, has_bug: bool) -> None:
        """Writes the module, the file with its pairing and the plain test."""
        self.write_kernel(folder, has_bug=has_bug)
        imports = f"import numpy as np\n\nfrom {self.name}_kernel import {self.kernel}\n"
        body = f"({self.parameters}):\n{self.oracle}\n"
        texts = {
            f"test_{self.name}.py": f"import kerneltest as kt\n{imports}\n\n"
            f"@kt.oracle_for({self.kernel}, {self.pairing})\ndef oracle{body}",
            f"plain_{self.name}.py": f"import jax\n{imports}{INTERPRETED}\n\ndef oracle{body}\n\n"
            f"def test_it():\n    rng = np.random.default_rng(0)\n    arguments = {self.arguments}\n"
            f"    output = jax.jit({self.kernel})(*arguments)\n"
            "    np.testing.assert_allclose(output, oracle(*arguments), rtol=1e-4, atol=1e-4)\n",
        }
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")

    def write_kernel(self, folder: Path, *, has_bug: bool) -> None:
        """Writes the module."""
        source = (ROOT / "kernels" / f"{self.name}.py").read_text(encoding="utf-8")
        assert source.count(self.right) == 1, f"kernels/{self.name}.py no longer has {self.right!r} once"
        source = source.replace(self.right, self.broken) if has_bug else source
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}_kernel.py").write_text(source, encoding="utf-8")


INTERPRETED = """
import functools
from jax.experimental import pallas as pl
pl.pallas_call = functools.partial(pl.pallas_call, interpret=True)
"""
SOFTMAX = """\
    maximum = x.max(axis=-1, keepdims=True)
    e = np.exp(x - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return e / np.where(total == 0, 1, total)
"""
MATMUL = """\
    z = x @ y
    return np.maximum(z, 0) if activation == "relu" else z
"""
ATTENTION = """\
    (sq, d), sk = q.shape[-2:], k.shape[-2]
    scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(d)
    scores = np.where(np.arange(sk) <= np.arange(sq)[:, None] + (sk - sq), scores, -np.inf)
    maximum = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(maximum == -np.inf, 0, maximum))
    total = e.sum(axis=-1, keepdims=True)
    return np.einsum("...qk,...kd->...qd", e / np.where(total == 0, 1, total), v)
"""
NORMAL = "rng.standard_normal({}).astype(np.float32)"
SAMPLES = (
    Sample(
        "softmax",
        "softmax_fused",
        SOFTMAX,
        "x",
        'x=kt.array("m n", "float32"), dims=dict(n=kt.dim(block=64)), all_masked="zeros"',
        f"[{NORMAL.format((5, 100))}]",
        "return jnp.where(is_finite(maximum), maximum, jnp.maximum(maximum, 0.0))",
        "return maximum",
    ),
    Sample(
        "matmul",
        "matmul",
        MATMUL,
        "x, y, activation='none'",
        'x=kt.array("m k", "float32"), y=kt.array("k n", "float32"), activation=kt.static(none=None, '
        "relu=__import__('matmul_kernel').relu), dims={each: kt.dim(block=32) for each in 'mnk'}",
        f"[{NORMAL.format((40, 50))}, {NORMAL.format((50, 60))}]",
        "depth_inside = s * block_k + jnp.arange(block_k) < k",
        "depth_inside = s * block_k + jnp.arange(block_k) < k - 1",
    ),
    Sample(
        "attention",
        "causal_attention_online",
        ATTENTION,
        "q, k, v",
        '**{x: kt.array(f"b h s{y} d", "float32", domain=(-np.inf, np.inf)) for x, y in ("qq", "kk", "vk")}, '
        "dims=dict(b=kt.dim(values=(1, 2)), h=kt.dim(values=(2, 1)), sq=kt.dim(block=16), sk=kt.dim(block=32), "
        "d=kt.dim(values=(16, 20, 32)))",
        f"[{', '.join([NORMAL.format((1, 2, 40, 16))] * 3)}]",
        "total = total * rescale + jnp.sum(e, axis=1)",
        "total = total + jnp.sum(e, axis=1)",
    ),
)


def environment_with(folder: Path) -> dict[str, str]:
    """The environment variables of a command that imports kerneltest from here and modules from a folder, on a CPU."""
    paths = os.pathsep.join(filter(None, (str(ROOT), str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}


def seconds(folder: Path, file: str, arguments: tuple[str, ...], status: int, *, writes_bytecode: bool) -> float:
    """Wall time of pytest on a file.

    Raises:
      RuntimeError: it did not exit with this status.
    """
    environment = environment_with(folder)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if not writes_bytecode:
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", file, *arguments]
    started = time.perf_counter()
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - started
    if ended.returncode != status:
        raise RuntimeError(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")
    return taken


def measure(sample: Sample, chosen: argparse.Namespace, *, has_bug: bool) -> list[dict[str, float]]:
    """Returns, for each round, the seconds of each row. The plain test, which may miss a bug, runs the right kernel."""
    right = chosen.folder.resolve() / sample.name / "right"
    folder = right.with_name("broken") if has_bug else right
    sample.write(right, has_bug=False)
    sample.write(folder, has_bug=has_bug)
    runs = {PLAIN: (right, f"plain_{sample.name}.py", ("-p", "no:kerneltest"), 0)}
    for row, words in ROWS.items():
        if row.startswith(chosen.rows):
            runs[row] = (folder, f"test_{sample.name}.py", ("-p", "kerneltest", *words), int(has_bug))
    rounds: list[dict[str, float]] = []
    for _ in range(chosen.rounds):
        rounds.append({})
        for row, run in runs.items():
            rounds[-1][row] = seconds(*run, writes_bytecode=not chosen.no_bytecode)
            print(f"{sample.name}, {'a bug' if has_bug else 'right'}, {row}: {rounds[-1][row]:.2f} s", flush=True)
    return rounds


def table(results: dict[str, list[dict[str, float]]]) -> str:
    """Medians of seconds, and of ratios to the plain test."""
    columns = list(results)
    lines = [f"| | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    for row in next(iter(results.values()))[0]:
        cells = []
        for rounds in results.values():
            taken = statistics.median(each[row] for each in rounds)
            ratio = statistics.median(each[row] / each[PLAIN] for each in rounds)
            cells.append(f"{taken:.2f} s, {ratio:.2f}")
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the softmax on interpret at quick, once")
    parser.add_argument("--samples", default="", metavar="NAMES", help="some of the files, separated by commas")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only the rows that begin with this")
    parser.add_argument("--no-bytecode", action="store_true", help="let Python write no compiled modules")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds, chosen.samples, chosen.rows = 1, SAMPLES[0].name, next(iter(ROWS))
    names = tuple(filter(None, chosen.samples.split(",")))
    samples = [sample for sample in SAMPLES if not names or sample.name in names]
    results = {
        f"{sample.name}{', a bug' * has_bug}": measure(sample, chosen, has_bug=has_bug)
        for sample in samples
        for has_bug in (False, True)
    }
    bytecode = "no bytecode written" if chosen.no_bytecode else "bytecode written"
    about = f"JAX {version('jax')}, {os.cpu_count()} processors, {bytecode}, {chosen.rounds} rounds"
    (chosen.folder / "save_loop.json").write_text(f"{json.dumps(results, indent=1)}\n", encoding="utf-8")
    (chosen.folder / "save_loop.md").write_text(f"{about}\n\n{table(results)}\n", encoding="utf-8")
    print(f"{about}\n\n{table(results)}")


if __name__ == "__main__":
    main()
