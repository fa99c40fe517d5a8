"""What of a machine and its environment counts when something stored is reused, and what does not."""

import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from kerneltest.core import host
from kerneltest.core.fingerprint import Fingerprint
from kerneltest.core.host import host_identity


def _fingerprint() -> Fingerprint:
    host._identity.cache_clear()
    host._hardware.cache_clear()
    return Fingerprint.of(host_identity())


@pytest.mark.parametrize(
    ("variable", "value", "changes"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true", True),
        ("NPY_DISABLE_CPU_FEATURES", "AVX512F", True),
        ("OPENBLAS_CORETYPE", "Haswell", True),
        ("LD_PRELOAD", "libother.so", True),
        ("DISABLE_PTXAS_OPT", "1", True),
        ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2", True),
        ("CUDA_FORCE_PTX_JIT", "1", True),
        ("NVIDIA_TF32_OVERRIDE", "0", True),
        ("HSA_OVERRIDE_GFX_VERSION", "11.0.0", True),
        ("CUDA_VISIBLE_DEVICES", "1", False),
        ("TPU_SKIP_MDS_QUERY", "1", False),
        ("TERM", "other", False),
    ],
)
def test_variables_of_libraries_count(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, changes: bool
) -> None:
    monkeypatch.delenv(variable, raising=False)
    before = _fingerprint()
    monkeypatch.setenv(variable, value)
    assert (_fingerprint() != before) is changes


@pytest.mark.parametrize(
    ("variable", "value", "changed", "changes"),
    [
        ("TRITON_PTXAS_PATH", "{}/tool", "tool", True),
        ("TPU_LIBRARY_PATH", "{}/tool", "tool", True),
        ("TPU_LIBRARY_PATH", "{}/gone", "gone", True),
        ("XLA_FLAGS", "--xla_gpu_strict=true --xla_gpu_cuda_data_dir={}", "deep/libdevice.bc", True),
        ("XLA_FLAGS", "--xla_dump_to={}", "tool", False),
        ("XLA_FLAGS", "{}/tool", "tool", True),
        ("TRITON_PLUGIN_PATHS", "{0}/other:{0}/tool", "tool", True),
        ("TRITON_CACHE_DIR", "{}", "tool", False),
        ("LD_PRELOAD", "{0}/other {0}/tool", "tool", True),
        ("LD_PRELOAD", "{0}/other:{0}/tool", "tool", True),
        ("LD_LIBRARY_PATH", ":/none:{}", "tool", True),
        ("LD_LIBRARY_PATH", ":/none:{}", "deep/libdevice.bc", False),
        ("CUDA_PATH", "{}", "bin/ptxas", True),
        ("CUDA_PATH", "{}", "deep/libdevice.bc", False),
        ("PATH", "{}", "ptxas", True),
        ("PATH", "{}", "tool", False),
    ],
)
def test_files_that_variables_name_count_with_their_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, changed: str, changes: bool
) -> None:
    for folder in ("deep", "bin"):
        (tmp_path / folder).mkdir()
    for name in ("tool", "other", "deep/libdevice.bc", "ptxas", "bin/ptxas"):
        (tmp_path / name).write_text("1", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv(variable, value.format(tmp_path))
    before = _fingerprint()
    assert _fingerprint() == before
    (tmp_path / changed).write_text("2", encoding="utf-8")
    assert (_fingerprint() != before) is changes


@pytest.mark.parametrize(
    ("variable", "value", "start", "told"),
    [
        ("LD_LIBRARY_PATH", "{}", "", 4),
        ("TPU_LIBRARY_PATH", "{}/libcublas.so", "", 5),  # nothing says that another build has other ends
        ("TPU_LIBRARY_PATH", "{}/libcublas.so", "\x03\0\0\0GNU\0", 4),
    ],
)
def test_large_files_are_told_by_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, start: str, told: int
) -> None:
    monkeypatch.setattr(host, "_WHOLE", 100)
    monkeypatch.setattr(host, "_END", 10)
    monkeypatch.setenv(variable, value.format(tmp_path))
    seen = set()
    for text in ("a" * 200, "b" + "a" * 199, "a" * 199 + "b", "a" * 201, "a" * 100 + "b" + "a" * 99):
        (tmp_path / "libcublas.so").write_text(start + text, encoding="utf-8")
        seen.add(_fingerprint())
    assert len(seen) == told


def test_a_folder_of_too_many_files_is_never_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "_MOST_FILES", 2)
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(tmp_path))
    for name in "ab":
        (tmp_path / name).touch()
    assert _fingerprint() == _fingerprint()
    (tmp_path / "c").touch()
    assert _fingerprint() != _fingerprint()


def test_a_pipe_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", ""):
        monkeypatch.setenv("LD_PRELOAD", str(tmp_path / name))
        assert _fingerprint() == _fingerprint()


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_module_that_python_imports_by_itself_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    seen = {_fingerprint()}
    module = ModuleType(name)
    module.__file__ = str(tmp_path / "code.py")
    monkeypatch.setitem(sys.modules, name, module)
    for text in ("", "1"):
        (tmp_path / "code.py").write_text(text, encoding="utf-8")
        seen.add(_fingerprint())
    assert len(seen) == 3


CPU = "processor\t: {number}\nmodel name\t: {model}\ncpu MHz\t\t: {speed}\nflags\t\t: {flags}\n\n"
MAPS = """7f00-7f01 r-xp 00000000 fe:00 42    {folder}/libm.so.6
7f01-7f02 r-xp 00000000 fe:00 43    {folder}/libopenblas-r0.3.so
7f02-7f03 r-xp 00000000 fe:00 44    {folder}/site-packages/libscipy_openblas64_.so
7f03-7f04 r-xp 00000000 fe:00 45    {folder}/libmagic.so
7f04-7f05 rw-p 00000000 00:00 0     [heap]
"""


def test_a_processor_is_told_by_its_model_and_its_instructions(tmp_path: Path) -> None:
    def described(model: str = "A", speed: str = "2000", flags: str = "avx avx2", count: int = 1) -> object:
        path = tmp_path / "cpuinfo"
        lines = (CPU.format(number=number, model=model, speed=speed, flags=flags) for number in range(count))
        path.write_text("".join(lines), encoding="utf-8")
        return host._processor(path)

    assert described() == described(speed="3000") == described(count=2)
    assert described(model="B") != described() != described(flags="avx")
    assert host._processor(tmp_path / "none") == [("model name", platform.processor())]


def test_loaded_libraries_of_the_system_count(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPS.format(folder="/usr/lib"), encoding="utf-8")
    assert host._mapped_libraries(maps) == ["/usr/lib/libm.so.6", "/usr/lib/libopenblas-r0.3.so"]
    assert host._mapped_libraries(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("platform.libc_ver", lambda: ("glibc", "0.1")),
        ("kerneltest.core.host._processor", lambda: [("model name", "another")]),
        ("kerneltest.core.host.available_processors", lambda: 10**6),
        ("numpy.show_config", lambda mode: {"SIMD Extensions": {"found": ["another"]}}),
    ],
)
def test_the_machine_counts(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[..., object]) -> None:
    before = _fingerprint()
    monkeypatch.setattr(name, change)
    assert _fingerprint() != before
