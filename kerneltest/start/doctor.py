"""`kerneltest doctor`: lists the available and missing backends, with reasons and what to install.

It imports JAX late, since it also reports a missing or broken JAX.
"""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kerneltest.backends.registry import REGISTRY, generic_id
from kerneltest.core.failures import format_exception
from kerneltest.core.fingerprint import installed_version
from kerneltest.core.ids import BackendId
from kerneltest.core.targets import WHEELS, skip_tpu_discovery
from kerneltest.report.text.lines import terminal_table


@dataclass(frozen=True, slots=True)
class BackendRow:
    """A backend, or backends that differ only in their targets."""

    id: str  # the id, with `TARGET` in place of several targets: `lower:TARGET`
    targets: tuple[str, ...]  # the targets; () for a single backend
    reason: str  # why this machine lacks the backend; "" if it is available
    install: str  # how to install it, or ""


Fact = tuple[str, str, str]
"""A version, a device, or a setting that affects results: its name, its value, and how to get it if it is missing."""

# For each distribution: what needs it, and how to install it.
_PACKAGES = {
    "jax": ("", "pip install jax"),
    "jaxlib": ("", "pip install jax"),
    "jax-cuda13-plugin": ("cuda", f"pip install '{WHEELS['cuda']}'"),
    "jax-cuda12-plugin": ("cuda", ""),
    "jax-rocm7-plugin": ("rocm", f"pip install '{WHEELS['rocm']}'"),
    "libtpu": ("compile:tpu-*, tpu", "pip install 'kerneltest[tpu]'"),
    "triton": ("compile:sm_*, compile:gfx*", "pip install 'kerneltest[compile]'"),
    "numpy": ("", "pip install numpy"),
    "pytest": ("", "pip install pytest"),
    "pytest-xdist": ("pytest -n auto", "pip install 'kerneltest[xdist]'"),
    "hypothesis": ("--kt-fuzz", "pip install 'kerneltest[fuzz]'"),
    "z3-solver": ("--kt-prove", "pip install 'kerneltest[prove]'"),
}
_MISSING = {
    "compile:xla": "pip install 'kerneltest[xla-cuda]'",
    "compile:tpu": "pip install 'kerneltest[tpu]'",
    "compile": "pip install 'kerneltest[compile]'",
    "cuda": f"an NVIDIA GPU, and pip install '{WHEELS['cuda']}'",
    "rocm": f"an AMD GPU, and pip install '{WHEELS['rocm']}'",
    "tpu": f"a TPU, and pip install '{WHEELS['tpu']}'",
}


def list_backends() -> list[BackendRow]:
    """Returns all backends, grouped. Broken installations are reasons, not errors."""
    skip_tpu_discovery()
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name in REGISTRY:
        reason = _unless_broken(lambda name=name: REGISTRY[name].make().unavailable())  # type: ignore[misc]
        groups.setdefault((generic_id(name), reason, _how_to_install(name) if reason else ""), []).append(name)
    return [
        BackendRow(
            shown,
            tuple(BackendId.parse(name).target.removeprefix("xla-") for name in names if shown != name),
            reason,
            install,
        )
        for (shown, reason, install), names in groups.items()
    ]


def _unless_broken(find: Callable[[], str]) -> str:
    # An exception of a broken installation, even SystemExit, is a reason.
    try:
        return find()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return format_exception(error).splitlines()[0]


def _how_to_install(name: str) -> str:
    if jax_problem():
        return "pip install -U 'jax>=0.10.2'"
    backend = BackendId.parse(name)
    wanted = [name, f"{backend.tier}:{backend.target.partition('-')[0]}", backend.tier]
    return next((_MISSING[each] for each in wanted if each in _MISSING), "")


def jax_problem() -> str:
    """Returns why JAX cannot be imported, or ""."""

    def load() -> str:
        import kerneltest.trace  # noqa: F401 - JAX may lack what it needs

        return ""

    return _unless_broken(load)


def versions() -> list[Fact]:
    """Returns the versions of Python and of the packages that backends and options need."""
    found = [("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", "")]
    for name, (use, install) in _PACKAGES.items():
        if version := installed_version(name):
            found.append((name, version, ""))
        elif install and name not in ("jax-cuda13-plugin", "jax-rocm7-plugin"):  # the backends report these
            found.append((name, f"not installed{f'; {use} needs it' if use else ''}", install))
    return found


def settings() -> Iterator[Fact]:
    """Yields JAX's devices, and its settings that affect results or devices."""
    if problem := jax_problem():
        yield "JAX", problem, "pip install -U 'jax>=0.10.2'"
        return
    from kerneltest.trace.jax_environment import jax_environment, jax_settings
    from kerneltest.trace.tracing import version_problem

    if newer := version_problem():
        yield "JAX", newer, ""
    yield "devices", jax_environment()["devices"], ""
    bits, precision = (jax_settings()[name] for name in ("jax_enable_x64", "jax_default_matmul_precision"))
    yield "jax_enable_x64", f"{bits}: 64-bit dtypes {'stay' if bits == 'True' else 'become 32-bit'}", ""
    own = "None: each backend has its own default"
    yield "jax_default_matmul_precision", own if precision == "None" else precision, ""
    for name in ("JAX_PLATFORMS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"):
        if value := os.environ.get(name):
            yield name, value, ""


def doctor_lines(backends: Sequence[BackendRow]) -> list[str]:
    """Returns the lines to print: tables of backends, of versions, and of devices and settings."""
    rows = []
    for backend in backends:
        rows.append((backend.id, "missing" if backend.reason else "ready", backend.reason or " ".join(backend.targets)))
        if backend.install:
            rows.append(("", "", f"to install: {backend.install}"))
    output = terminal_table(("", "", ""), rows)[1:]
    for facts in (versions(), settings()):
        output += ["", *terminal_table(("", "", ""), list(facts))[1:]]
    return output
