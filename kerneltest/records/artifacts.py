"""Artifacts and array arguments that a run saves next to its records."""

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from kerneltest.core.dtypes import Array, parse_dtype
from kerneltest.core.failures import escape_surrogates
from kerneltest.records.files import RecordError, open_inside


def save_artifacts(folder: Path, case: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Saves an artifact's files under `artifacts/` and returns their paths within the folder."""
    paths = {f"artifacts/{case}/{name}": text for name, text in files.items()}
    for path, text in paths.items():
        with open_inside(folder, path, "wb") as file:
            file.write(escape_surrogates(text).encode())
    return tuple(paths)


def save_arguments(folder: Path, case: str, arguments: Mapping[str, Array]) -> str:
    """Saves a case's array arguments under `cases/` and returns the path within the folder."""
    # Stored as unsigned integers under dtype and leaf, since NumPy's format lacks bfloat16.
    raw = {f"{value.dtype.name}:{leaf}": _bits(value) for leaf, value in arguments.items()}
    path = f"cases/{case}.npz"
    with open_inside(folder, path, "wb") as file:
        np.savez_compressed(file, **raw)  # type: ignore[arg-type]
    return path


def load_arguments(folder: Path, name: str, most: int = 2**30) -> dict[str, Array]:
    """Loads the array arguments saved by `save_arguments`, by leaf.

    Args:
      folder: the run's folder.
      name: the path that `save_arguments` returned.
      most: limit for the size of all arrays together, in bytes.

    Raises:
      RecordError: they cannot be read, or exceed the limit.
    """
    arguments: dict[str, Array] = {}
    try:
        with open_inside(folder, name) as file, zipfile.ZipFile(file) as saved:
            for entry in saved.infolist():
                dtype, leaf = entry.filename.removesuffix(".npy").split(":", 1)
                if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise ValueError(f"{leaf} is compressed in a way that NumPy does not use")
                with saved.open(entry) as packed:
                    bits = _array(packed, most - sum(value.nbytes for value in arguments.values()))
                arguments[leaf] = bits.view(parse_dtype(dtype)).reshape(bits.shape)
    except Exception as error:  # a damaged file raises all kinds
        raise RecordError(f"{name}: the inputs cannot be read: {error}") from error
    return arguments


def _array(file: IO[bytes], most: int) -> Array:
    """Reads an array of unsigned integers in NumPy's format; checks its size before allocating it."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array is in another version of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    size = math.prod(shape) * dtype.itemsize
    if dtype.kind != "u" or not 0 <= size <= most:
        raise ValueError(f"an array of {dtype} of shape {shape} is not what was saved")
    return np.frombuffer(bytearray(file.read(size)), dtype).reshape(shape, order="F" if fortran else "C")


def _bits(value: Array) -> Array:
    return value.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[value.dtype.itemsize])
