"""What a device computes for every case of the suites: `python benchmarks/device_outputs.py cuda FOLDER`.

Writes `digests.json`, for each case a digest of the outputs' bits (NaNs made one), and `normal.npz`, the outputs
themselves for family `normal`. tests/test_simulate_device.py holds the simulator against both.
"""

import hashlib
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kerneltest.backends.base import Backend, Executable
from kerneltest.backends.registry import resolve
from kerneltest.core.dtypes import is_float
from kerneltest.declare.pairing import Pairing
from kerneltest.jaxprs.trace import environment, trace
from kerneltest.plan.cases import Case, cases
from kerneltest.plan.families import GROUPS
from kerneltest.plan.signatures import dtypes_of

ROOT = Path(__file__).parent.parent
DEPTH, SEED = "quick", 0


def pairings() -> Iterator[tuple[str, Pairing]]:
    """Those of the suites, by `suite.name`."""
    for path in sorted((ROOT / "suites").glob("test_*.py")):
        for name, value in vars(importlib.import_module(f"suites.{path.stem}")).items():
            if isinstance(value, Pairing):
                yield f"{path.stem.removeprefix('test_')}.{name}", value


def outputs(pairing: Pairing, backend: Backend) -> Iterator[tuple[Case, tuple[np.ndarray, ...]]]:
    """Every case that the backend serves, with what it computes."""
    for dtype in dtypes_of(pairing, DEPTH):
        prepared: dict[object, Executable] = {}
        for group in GROUPS:
            for case in cases(pairing, dtype, group, DEPTH, SEED):
                traced = trace(pairing, case.signature) if case.signature not in prepared else None
                if traced is not None:
                    if backend.unsupported_reason(traced):
                        return
                    prepared[case.signature] = backend.prepare(traced)  # type: ignore[assignment]
                arguments = case.fill(pairing)
                yield case, prepared[case.signature].run([arguments[path] for path in pairing.leaves])


def canonical(values: np.ndarray) -> np.ndarray:
    """The same values with one NaN for all."""
    return np.where(np.isnan(values), np.array(np.nan, values.dtype), values) if is_float(values.dtype) else values


def digest(found: tuple[np.ndarray, ...]) -> str:
    """Of the outputs' bits."""
    return hashlib.sha256(b"".join(canonical(each).tobytes() for each in found)).hexdigest()[:16]


def main(backend_id: str, folder: Path) -> int:
    (backend,) = resolve([backend_id])
    if reason := backend.unavailable():
        print(reason, file=sys.stderr)
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    digests: dict[str, dict[str, str]] = {}
    normal: dict[str, np.ndarray] = {}
    for name, pairing in pairings():
        if "pipeline" in name:
            continue  # written in Mosaic, which nothing simulates
        try:
            for case, found in outputs(pairing, backend):
                digests.setdefault(name, {})[case.id] = digest(found)
                if case.family.name == "normal":
                    for i, each in enumerate(found):
                        normal[f"{case.id}.{i}.{each.dtype.name}"] = canonical(each).view(f"u{each.dtype.itemsize}")
        except Failure as error:
            print(f"{name}: {error}", file=sys.stderr)
        print(name, len(digests.get(name, {})), flush=True)
    facts = {**environment(), **backend.environment()}
    (folder / "digests.json").write_text(json.dumps({"environment": facts, "digests": digests}, indent=0) + "\n")
    np.savez_compressed(folder / "normal.npz", **normal)  # type: ignore[arg-type]
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], Path(sys.argv[2])))
