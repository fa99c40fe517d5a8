"""What a GPU computes for cases of the suites: `python benchmarks/device_outputs.py`, on a machine with a Hopper GPU.

Writes tests/device_outputs.jsonl.gz, to which tests/test_simulate_device.py holds the simulator: a line with the
versions and the device, then one for each case. Each case is written down whole, with a digest of its inputs, so that
it stays valid when the plan or its ids change. Of every case at depth quick whose roundings the IR
all defines there is a digest of the outputs; of the other kernels' family `normal`, a sample of the outputs themselves.

`--backend interpret --out FILE` tries the script without a GPU. Exits with 0, with 1 if a kernel failed, and with 2
if there is no such backend.
"""

import argparse
import base64
import gzip
import hashlib
import importlib
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import Array, is_float, parse_dtype
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Tier
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.cases import Case, value_cases
from kerneltest.plan.families import FAMILIES, GROUPS
from kerneltest.plan.signatures import Signature, signature_dtypes
from kerneltest.trace.jax_environment import jax_environment
from kerneltest.trace.tracing import Traced, trace

ROOT = Path(__file__).parent.parent
_GZIP = 31  # zlib's number for a gzip header and the largest window
FIXTURE = ROOT / "tests" / "device_outputs.jsonl.gz"
SIMULATOR = "simulate:sm_90"
DEPTH, SEED = "quick", 0
SAMPLED = 48  # elements of each output
DEFINED = {"iota.grid", "iota.blocked", "vector_add.whole", "vector_add.blocked"}  # no sum over an axis, no exp or tanh


@dataclass(frozen=True, slots=True)
class Taken:
    """What a device computed for one case.

    Attributes:
      case: what it was asked; its pairing's id is suite and name, such as `matmul.tiled`.
      inputs: digest of the arguments.
      bits: digest of all outputs, or "".
      sampled: some elements of each output, where there is no digest.
    """

    case: Case
    inputs: str
    bits: str = ""
    sampled: tuple[Array, ...] = ()


def pairings() -> Iterator[tuple[str, Pairing]]:
    """Those of the suites, by `suite.name`."""
    for path in sorted((ROOT / "suites").glob("test_*.py")):
        for name, value in vars(importlib.import_module(f"suites.{path.stem}")).items():
            if isinstance(value, Pairing):
                yield f"{path.stem.removeprefix('test_')}.{name}", value


def chosen(name: str, pairing: Pairing) -> Iterator[tuple[Case, Traced, bool]]:
    """The cases to ask of a pairing that can be simulated, traced, and whether their bits are defined."""
    (simulator,) = resolve([SIMULATOR])
    for dtype_name in signature_dtypes(pairing, DEPTH):
        traced: dict[Signature, Traced] = {}
        for group in GROUPS:
            for case in value_cases(pairing, name, dtype_name, group, SEED, DEPTH):
                if case.signature not in traced:
                    traced[case.signature] = trace(pairing, case.signature)
                    if simulator.unsupported_reason(traced[case.signature]):
                        return
                found = traced[case.signature]
                defined = name in DEFINED or (group == "structural" and found.exact)
                if defined or case.family.name == "normal":
                    yield case, found, defined


def arguments(pairing: Pairing, case: Case) -> list[Array]:
    """The leaves of a case; they follow from the pairing's name and not from its file."""
    return list(case.fill(pairing).values())


def taken(name: str, pairing: Pairing, backend: Backend) -> Iterator[Taken]:
    """What a backend computes for the chosen cases of a pairing."""
    prepared: dict[Signature, Executable] = {}
    for case, traced, defined in chosen(name, pairing):
        if case.signature not in prepared:
            prepared[case.signature] = backend.prepare(traced)  # type: ignore[assignment]
        leaves = arguments(pairing, case)
        outputs = prepared[case.signature].run(leaves)
        if defined:
            yield Taken(case, digest(leaves), bits=digest(outputs))
        else:
            yield Taken(case, digest(leaves), sampled=tuple(map(sample, outputs)))


def canonical(values: Array) -> Array:
    """The same values with one NaN for all."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values) if is_float(values.dtype) else values


def digest(arrays: Iterable[Array]) -> str:
    """Of some arrays' bits, NaNs made one."""
    return _digest(b"".join(canonical(each).tobytes() for each in arrays))


def sample(values: Array) -> Array:
    """Elements from the first to the last, at even distances."""
    places = np.linspace(0, values.size - 1, min(values.size, SAMPLED)).astype(int)
    return canonical(values).reshape(-1)[places]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def write(path: Path, facts: Mapping[str, Any], found: Iterable[Taken]) -> None:
    """Writes what a device computed; the same bytes for the same outputs."""
    lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in [dict(facts), *map(_as_json, found)]]
    packer = zlib.compressobj(9, wbits=_GZIP, strategy=zlib.Z_FILTERED)  # numbers in text: 3% smaller than by default
    path.write_bytes(packer.compress("".join(lines).encode()) + packer.flush())


def read(path: Path) -> tuple[dict[str, str], list[Taken]]:
    """Versions and device, and what was computed there."""
    facts, *lines = map(json.loads, gzip.decompress(path.read_bytes()).decode().splitlines())
    return facts, [_from_json(line) for line in lines]


def _as_json(found: Taken) -> dict[str, Any]:
    signature = found.case.signature
    return {
        "pairing": found.case.pairing_id,
        "signature": {
            "dims": signature.dims, "dtypes": signature.dtypes, "statics": signature.statics, "dtype": signature.dtype
        },
        "family": found.case.family.name,
        "target": found.case.target,
        "inputs": found.inputs,
        "bits": found.bits,
        "sampled": [[each.dtype.name, base64.b64encode(each.tobytes()).decode()] for each in found.sampled],
    }  # fmt: skip


def _from_json(line: Mapping[str, Any]) -> Taken:
    dims, dtypes, statics = (tuple(map(tuple, line["signature"][key])) for key in ("dims", "dtypes", "statics"))
    signature = Signature(dims, dtypes, statics, line["signature"]["dtype"])
    name = line["pairing"]
    case = Case(name, name.partition(".")[2], signature, FAMILIES[line["family"]], line["target"], SEED)
    sampled = tuple(np.frombuffer(base64.b64decode(text), parse_dtype(name)) for name, text in line["sampled"])
    return Taken(case, line["inputs"], line["bits"], sampled)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="cuda", help="who computes (default cuda)")
    parser.add_argument("--out", type=Path, default=FIXTURE, help="the file to write (default the tests' own)")
    options = parser.parse_args(words)
    (backend,) = resolve([options.backend])
    if backend.tier is not Tier.DEVICE and options.out.resolve() == FIXTURE:
        parser.error(f"{FIXTURE.relative_to(ROOT)} is for what a device computed: name another file with --out")
    if reason := backend.unavailable():
        print(reason, file=sys.stderr)
        return 2
    found: list[Taken] = []
    failed = False
    for name, pairing in pairings():
        before = len(found)
        try:
            found += taken(name, pairing, backend)
        except Failure as error:
            print(f"{name}: {error}", file=sys.stderr)
            failed = True
        print(f"{name}: {len(found) - before} cases", flush=True)
    write(options.out, {**jax_environment(), **backend.environment()}, found)
    print(f"{options.out}: {len(found)} cases, {options.out.stat().st_size} bytes")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
