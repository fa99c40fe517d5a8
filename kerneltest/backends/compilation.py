"""Kernels lowered and compiled without their device: the shape of these tiers, which GPUs and TPUs share.

A tier lowers each Pallas call of a kernel. If it compiles as well, a `Compiler` in a child process answers for each
call, and its answers are cached on disk.
"""

import atexit
import json
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import jax
from jax.experimental.compilation_cache import compilation_cache

from kerneltest.backends.base import Artifact, Backend
from kerneltest.core.children import Child, Children
from kerneltest.core.details import Crashed, Detail, Hung, NotBuilt, ResourceExceeded, Stated, Unavailable
from kerneltest.core.failures import Failure
from kerneltest.core.files import DiskStore
from kerneltest.core.fingerprint import Fingerprint, library_contents
from kerneltest.core.host import host_identity
from kerneltest.core.targets import Tier, Tpu
from kerneltest.trace.tracing import Traced


class LoweredCall(Protocol):
    """A Pallas call as lowered code. `suffix` is that of the file with its text; "" if there is none."""

    @property
    def name(self) -> str: ...

    @property
    def suffix(self) -> str: ...

    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CompiledCall:
    """A compiled call."""

    facts: dict[str, int]  # the compiler's report: registers per thread, bytes of memory, counts of instructions
    advice: tuple[str, ...]  # facts that its author may want to change, in words
    files: Mapping[str, str] = field(default_factory=dict)  # the machine code as text, by the suffix of its file


@dataclass(frozen=True, slots=True)
class LowerTier(Backend):
    """A tier that lowers each call of a kernel for a `Target` or a `Tpu`, by JAX's own rules."""

    id: str
    target: Any
    tier = Tier.LOWER

    @property
    def platform(self) -> str:
        return str(self.target.id if isinstance(self.target, Tpu) else self.target.platform)

    @abstractmethod
    def lower(self, traced: Traced) -> Sequence[LoweredCall]:
        """Returns the lowered calls, in order; a Failure has the primitive that has no rule, and the user's line."""

    def prepare(self, traced: Traced) -> Artifact:
        calls = self.lower(traced)
        return Artifact(len(calls), files=lambda: _texts(calls))


class CompileTier(LowerTier):
    """A tier that also compiles each call, by a compiler of a Python package."""

    tier = Tier.COMPILE
    package: ClassVar[str]

    @abstractmethod
    def compile(self, call: Any) -> CompiledCall:
        """Compiles one lowered call, or returns it from the cache. Failure: the compiler's error, death or timeout."""

    def lowering_backend(self) -> str:
        return f"{Tier.LOWER}:{self.target}"

    def prepare(self, traced: Traced) -> Artifact:
        calls = self.lower(traced)
        compiled: dict[str, CompiledCall] = {}
        for name, call in unique_names(calls):
            try:
                compiled[name] = self.compile(call)
            except Failure as failure:
                detail = failure.detail
                if isinstance(detail, NotBuilt | ResourceExceeded):
                    detail = replace(detail, kernel=name, target=str(self.target))
                else:
                    detail = prefix(detail, f"kernel {name} for {self.target}: ")
                raise Failure(failure.verdict, detail, failure.stderr) from failure
        facts = {name: call.facts for name, call in compiled.items()}
        advice = tuple(f"{name}: {line}" for name, call in compiled.items() for line in call.advice)
        code = {f"{name}.{suffix}": text for name, call in compiled.items() for suffix, text in call.files.items()}
        return Artifact(len(calls), facts, advice, lambda: {**_texts(calls), **code})

    def environment(self) -> dict[str, Any]:
        return {self.package: metadata.version(self.package)}


_Call = TypeVar("_Call", bound=LoweredCall)


def unique_names(calls: Sequence[_Call]) -> list[tuple[str, _Call]]:
    """Returns calls with their names, which are numbered if several calls share one."""
    names = [call.name for call in calls]
    numbered = enumerate(zip(names, calls, strict=True))
    return [(f"{name}.{i}" if names.count(name) > 1 else name, call) for i, (name, call) in numbered]


def _texts(calls: Sequence[LoweredCall]) -> dict[str, str]:
    return {f"{name}.{call.suffix}": call.text for name, call in unique_names(calls) if call.suffix}


def prefix(detail: Detail, text: str) -> Detail:
    """Returns a detail whose words begin with some text."""
    match detail:
        case Hung():
            return replace(detail, words=f"{text}{detail.words}")
        case Crashed():
            return replace(detail, cause=f"{text}{detail.cause}")
        case Unavailable():
            return replace(detail, reason=f"{text}{detail.reason}")
    return Stated(f"{text}{detail.text()}")


# Compilers, and the cache of their answers.

Answer = dict[str, Any]  # plain JSON
_store: DiskStore | None = None


class Compiler:
    """A compiler in child processes, which run in parallel. Its answers are cached on disk."""

    SECONDS = 120.0  # LLVM and XLA can take a minute for a block that is too large

    def __init__(self, module: str, name: str) -> None:
        self.children = Children(lambda: Child(module, name))
        atexit.register(self.children.close)

    def ask(self, request: Mapping[str, Any]) -> Answer:
        """Returns the answer (JSON) to a request, from the cache if possible; with a verdict, it has `printed`, too.

        Failure: the compiler died, or took longer than `SECONDS` and was killed.
        """
        if _store is None:
            return self._compile(request)
        name = f"compiled/{Fingerprint.of(request, _circumstances()).text}.json.gz"
        try:
            if (known := _store.read(name)) is not None:
                recalled: Answer = json.loads(known)
                return recalled
        except ValueError as error:
            warnings.warn(f"{_store.folder / name} cannot be read ({error}): compiling again", stacklevel=2)
        answer = self._compile(request)
        _store.write(name, json.dumps(answer).encode())
        return answer

    def _compile(self, request: Mapping[str, Any]) -> Answer:
        answer: Answer = self.children.ask(request, self.SECONDS)
        printed = [line.strip() for line in answer.pop("stderr").splitlines() if "error" in line.lower()]
        if "verdict" in answer:
            answer["printed"] = printed[-1] if printed else ""
        return answer


def _circumstances() -> str:
    """Returns the fingerprint of what compiled code follows from beside its source: compilers and the machine."""
    return Fingerprint.of(library_contents(), host_identity()).text


# By default JAX stores nothing that compiles in under a second or to little code, as kernels do.
_STORE_ALL = {"jax_persistent_cache_min_compile_time_secs": 0.0, "jax_persistent_cache_min_entry_size_bytes": -1}


@contextmanager
def disk_cache(folder: Path) -> Iterator[None]:
    """Caches what Triton, libtpu and JAX compile, JAX unless the user has set its cache; restores JAX's settings."""
    global _store
    _store = DiskStore(folder)
    config: Any = jax.config
    if config.jax_compilation_cache_dir or not config.jax_enable_compilation_cache:
        yield
        return
    changed = {"jax_compilation_cache_dir": str(folder / "xla" / _circumstances()), **_STORE_ALL}
    before = {name: getattr(config, name) for name in changed}
    _update(changed)
    try:
        yield
    finally:
        _update(before)


def _update(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # the first compilation fixes the folder
