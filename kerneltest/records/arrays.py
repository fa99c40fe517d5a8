"""Arrays and texts that stand beside the records of a run."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from kerneltest.core.dtypes import Array, dtype_named


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves the texts of an artifact under `artifacts/`; returns their paths within the folder."""
    (folder / "artifacts" / case).mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / "artifacts" / case / name).write_text(text, encoding="utf-8")
    return tuple(f"artifacts/{case}/{name}" for name in files)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/`; returns the path within the folder."""
    (folder / "cases").mkdir(exist_ok=True)
    # By dtype and leaf, as unsigned integers: NumPy's format knows no bfloat16.
    raw = {f"{value.dtype.name}:{leaf}": _bits(value) for leaf, value in arguments.items()}
    np.savez_compressed(folder / "cases" / f"{case}.npz", **raw)  # type: ignore[arg-type]
    return f"cases/{case}.npz"


def load_arguments(path: Path) -> dict[str, Array]:
    """The array arguments saved by `save_arguments`, by leaf."""
    with np.load(path, allow_pickle=False) as saved:
        arrays = [(key.split(":", 1), saved[key]) for key in saved.files]
    return {leaf: bits.view(dtype_named(name)).reshape(bits.shape) for (name, leaf), bits in arrays}


def _bits(value: Array) -> Array:
    return value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])
