"""The machine behind results: environment variables and the files that they name, processor, C library and BLAS.

Verdicts and compiled code that one machine stored are reused only where all of this is the same.
"""

import functools
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.core.fingerprint import file_contents
from kerneltest.core.processes import available_processors

# Environment variables that compilers, JAX, NumPy, its BLAS and the loader of shared libraries read; what kernels and
# oracles read shows in their traces and values.
_VARIABLES = (
    *("XLA_", "TF_XLA_", "JAX_", "LIBTPU_", "TPU_", "TRITON_", "PTXAS_", "MLIR_", "LLVM_", "MOSAIC_"),
    *("CUDA_", "NVIDIA_TF32_", "HIP_", "HSA_", "ROCM_"),
    *("AMDGCN_", "NVPTX_", "DISABLE_", "ALLOW_", "LD_", "DYLD_", "GLIBC_"),
    *("NPY_", "NUMPY_", "OPENBLAS_", "GOTO_", "BLIS_", "MKL_", "OMP_", "VECLIB_"),
)
_UNCOUNTED = {
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "it differs between the workers of a run"),
    "MOSAIC_GPU_CUDA_ROOT": "JAX sets it on first use of Mosaic GPU, whatever it was",
    "TPU_SKIP_MDS_QUERY": "kerneltest sets it before libtpu is loaded, and it changes no result",
}
_WRITTEN = re.compile(
    "cache|dump|log|home|reproducer", re.IGNORECASE
)  # in names of variables and flags: what runs write
_LOADER = ("LD_", "DYLD_")  # finds libraries in the folders themselves, not below
_TOOLKITS = ("CUDA_", "HIP_", "HSA_", "ROCM_")  # name folders with gigabytes of libraries
_TOOLS = ("ptxas", "nvlink", "fatbinary", "ld.lld")  # that XLA and Mosaic GPU look for on the path

_MOST_FILES = 20_000  # of a folder
_WHOLE = 2**22  # bytes: a larger file counts by its ends; a named one only if the linker's id of the build is there
_END = 2**20
_BUILD_ID = b"\x03\0\0\0GNU\0"  # the head of its note


def host_identity() -> dict[str, Any]:
    """Returns what of this machine and its environment may change a result, as values that have a fingerprint."""
    names = sorted(name for name in os.environ if name.startswith(_VARIABLES) and name not in _UNCOUNTED)
    return _identity(tuple((name, os.environ[name]) for name in names), os.environ.get("PATH"))


@functools.cache  # a process keeps the files that it started with
def _identity(variables: tuple[tuple[str, str], ...], path: str | None) -> dict[str, Any]:
    tools = {name: file_contents(Path(found)) for name in _TOOLS if (found := shutil.which(name, path=path))}
    named = {name: (value, dict(_named(name, value))) for name, value in variables}
    return {"variables": named, "tools": tools, "hardware": _hardware()}


def _named(variable: str, value: str) -> Iterator[tuple[str, str]]:
    """Yields the paths that a variable names, with their contents, unless runs write there."""
    for words in (value, *value.split()):
        name, _, rest = words.rpartition("=")
        if _WRITTEN.search(f"{variable} {name}"):
            continue
        for text in {rest, *rest.split(os.pathsep), *rest.split(",")}:
            try:
                if not text or not (path := Path(text)).exists():
                    continue
            except (OSError, ValueError):
                continue
            if path.is_file():
                yield text, _content(path, named=True)
            elif path.is_dir() and variable.startswith(_TOOLKITS):
                tools = (path / "bin" / tool for tool in _TOOLS)
                yield from ((str(tool), file_contents(tool)) for tool in tools if tool.is_file())
            elif path.is_dir():
                yield text, _folder(str(path), not variable.startswith(_LOADER))


def _folder(home: str, deep: bool) -> str:
    """Returns a digest of the files of a folder; if `deep`, also of those below it. Too many files are never equal."""
    digest, count = hashlib.sha256(), 0
    for folder, folders, names in os.walk(home):
        folders[:] = sorted(folders) if deep else []
        for path in (Path(folder, name) for name in sorted(names)):
            if not path.is_file():
                continue
            if (count := count + 1) > _MOST_FILES:
                return secrets.token_hex()
            digest.update(f"{path.relative_to(home)}\0{_content(path)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _content(path: Path, *, named: bool = False) -> str:
    try:
        if (size := path.stat().st_size) <= _WHOLE:
            return file_contents(path)
        with path.open("rb") as file:
            first = file.read(_END)
            file.seek(-_END, os.SEEK_END)
            ends = first + file.read(_END)
        if named and _BUILD_ID not in ends:
            return file_contents(path)
        return f"{size} {hashlib.sha256(ends).hexdigest()}"
    except OSError as error:
        return f"unreadable: {error}"


# The machine: NumPy, its BLAS and the C library choose their code by the processor.

_AT_START = ("sitecustomize", "usercustomize")  # modules that Python imports before any other
_NAMES = "vendor_id|cpu family|model|model name|stepping|flags|Features|CPU (?:implementer|architecture|variant|part)"
_DESCRIBED = re.compile(rf"^({_NAMES})\s*:\s*(.*)$", re.MULTILINE)
_MAPPED = re.compile(r"(?<=\s)/\S*/(?:libc|libm|libmvec|lib\w*blas\w*)[-.][^/\n]*$", re.MULTILINE)


@functools.cache
def _hardware() -> dict[str, Any]:
    numpy = np.show_config(mode="dicts") or {}
    started = {name: getattr(sys.modules.get(name), "__file__", None) for name in _AT_START}
    return {
        "processor": (platform.machine(), _processor(), available_processors()),
        "system": (sys.platform, platform.libc_ver(), platform.mac_ver()[0]),
        "start": {name: file_contents(Path(path)) for name, path in started.items() if path},
        "libraries": {path: file_contents(Path(path)) for path in _mapped_libraries()},
        "numpy": [numpy.get(part) for part in ("SIMD Extensions", "Build Dependencies")],
    }


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[tuple[str, str]]:
    """Returns the models of the processors and what instructions they have."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [("model name", platform.processor())]
    return sorted(set(_DESCRIBED.findall(text)))


def _mapped_libraries(maps: Path = Path("/proc/self/maps")) -> list[str]:
    """Returns the C and BLAS libraries that this process has loaded, but for those that come with a Python package."""
    try:
        found = set(_MAPPED.findall(maps.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return []
    return sorted(path for path in found if not {"site-packages", "dist-packages"} & set(Path(path).parts))
