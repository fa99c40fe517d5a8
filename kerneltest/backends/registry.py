"""The registry of backends by id. Loading it imports neither NumPy nor JAX; resolving a backend imports its module."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from inspect import isabstract
from typing import TYPE_CHECKING, Any

from kerneltest.core.ids import BackendId
from kerneltest.core.targets import BACKEND_IDS, TARGETS, TPUS, XLA_TARGETS, Tier, suggest_backend

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend

ALL = "all"


@dataclass(frozen=True, slots=True)
class BackendEntry:
    """A backend that users can select, made on first use. If it is not `in_all`, users select it by id or pattern."""

    id: str
    module: str
    make: Callable[[], "Backend"]
    in_all: bool


# Returns an entry for a class of kerneltest, by its full name, that takes `id` and `arguments`.
def _entry(id: str, path: str, *arguments: Any, in_all: bool = True) -> BackendEntry:  # noqa: A002
    return BackendEntry(id, path.rpartition(".")[0], lambda: _make(path, id, *arguments), in_all)


def _make(path: str, *arguments: Any) -> "Backend":
    module, _, name = path.rpartition(".")
    instance: Backend = getattr(import_module(module), name)(*arguments)
    return instance


def _each(tier: Tier, targets: Mapping[str, Any], path: str, in_all: str = "") -> list[BackendEntry]:
    return [_entry(f"{tier}:{name}", path, target, in_all=name in in_all.split()) for name, target in targets.items()]


# In the order of reports, from the interpreters to the devices. `all` includes one target of each kind for tiers that
# take milliseconds, and no compilers.
_ENTRIES = [
    _entry("interpret", "kerneltest.backends.interpret.Interpret"),
    _entry("interpret-mosaic-gpu", "kerneltest.backends.interpret_mosaic.InterpretMosaic", "mosaic_gpu"),
    _entry("interpret-tpu", "kerneltest.backends.interpret_mosaic.InterpretMosaic", "mosaic_tpu"),
    *_each(Tier.LOWER, TARGETS, "kerneltest.backends.codegen.tiers.LowerGpu", "sm_90 gfx942 gfx1151"),
    *_each(Tier.LOWER, TPUS, "kerneltest.backends.tpu.tiers.LowerTpu", "tpu-v5e"),
    *_each(Tier.COMPILE, TARGETS, "kerneltest.backends.codegen.tiers.CompileGpu"),
    *_each(Tier.COMPILE, TPUS, "kerneltest.backends.tpu.tiers.CompileTpu"),
    *_each(Tier.COMPILE, XLA_TARGETS, "kerneltest.backends.codegen.xla_cuda.XlaCompile"),
    *_each(Tier.SIMULATE, TARGETS, "kerneltest.backends.simulate.backend.Simulate", "sm_90 gfx942"),
    _entry("cuda", "kerneltest.backends.device.Device", frozenset({"mosaic_tpu"})),
    _entry("rocm", "kerneltest.backends.device.Device", frozenset({"mosaic_tpu", "mosaic_gpu"})),
    _entry("tpu", "kerneltest.backends.device.Device", frozenset({"triton", "mosaic_gpu"})),
]
REGISTRY = {entry.id: entry for entry in _ENTRIES}


def backend(id: str, *, in_all: bool = False) -> Callable[[type["Backend"]], type["Backend"]]:  # noqa: A002
    """Registers a class as a backend. Use it in the root folder's `conftest.py`, so that `--kt-backends` knows the id.

        @kt.backend("my-simulator")
        class MySimulator(kt.Backend):
            tier = kt.Tier.SIMULATE

            def prepare(self, traced):
                return MyExecutable(traced)  # has `precision` and `run(leaves)`

    Args:
      id: as users select it and records name it.
      in_all: whether `all`, the default of `--kt-backends`, includes it.

    Raises:
      ValueError: the id is taken or is not one word, or the class has no tier or no `prepare`.
    """
    if not id or set(id) & set(" ,*?[]"):
        raise ValueError(f"backend: the id {id!r} must be one word without commas and wildcards")

    def register(cls: type["Backend"]) -> type["Backend"]:
        def make() -> "Backend":
            instance = cls()
            object.__setattr__(instance, "id", id)  # it may be a frozen dataclass
            return _make("kerneltest.backends.user_backend.UserBackend", instance, id)

        if id in REGISTRY and REGISTRY[id].module != cls.__module__:
            raise ValueError(f"backend: the id {id!r} is taken by {REGISTRY[id].module}")
        if not isinstance(getattr(cls, "tier", None), Tier):
            raise ValueError(f"backend: {cls.__name__} must set its tier, as in `tier = kt.Tier.DEVICE`")
        if isabstract(cls):
            raise ValueError(f"backend: {cls.__name__} must define `prepare`")
        REGISTRY[id] = BackendEntry(id, cls.__module__, make, in_all)
        BACKEND_IDS[id] = None
        return cls

    return register


def select_ids(words: Sequence[str]) -> tuple[str, ...]:
    """Returns the ids that ids, patterns such as `lower:*`, or `all` select; a ValueError if one is unknown."""
    chosen: dict[str, None] = {}
    for word in words:
        matching = [e.id for e in REGISTRY.values() if (e.in_all if word == ALL else fnmatchcase(e.id, word))]
        if not matching:
            known = ", ".join(dict.fromkeys(generic_id(name) for name in REGISTRY))
            listed = f"; known are {known}, patterns such as 'lower:*', or 'all'; TARGET is as in {[*TARGETS][1]}"
            raise ValueError(f"unknown backend {word!r}{suggest_backend(word, REGISTRY) or listed}")
        chosen |= dict.fromkeys(matching)
    return tuple(chosen)


def generic_id(backend_id: str) -> str:
    """Returns an id as help texts show it, with TARGET in place of its target: `lower:TARGET`."""
    backend = BackendId.parse(backend_id)
    if backend.target in XLA_TARGETS:
        return f"{backend.tier}:xla-TARGET"
    return f"{backend.tier}:TARGET" if backend.target in TARGETS or backend.target in TPUS else backend_id


def sort_ids(ids: Iterable[str]) -> list[str]:
    """Returns backend ids, each once, in the order of reports: interpreters first, devices and unknown ids last."""
    known = list(REGISTRY)
    return sorted(dict.fromkeys(ids), key=lambda name: known.index(name) if name in REGISTRY else len(known))


def resolve(words: Sequence[str], orders: int = 0) -> tuple["Backend", ...]:
    """Returns the selected backends, with `orders` random orders of programs where possible; raises as `select_ids`."""
    return tuple(_instance(name).with_program_orders(orders) for name in select_ids(words))


_INSTANCES: dict[str, tuple[BackendEntry, "Backend"]] = {}


# Returns the one instance of a backend, unless it has been registered again.
def _instance(backend_id: str) -> "Backend":
    entry = REGISTRY[backend_id]
    if backend_id not in _INSTANCES or _INSTANCES[backend_id][0] is not entry:
        _INSTANCES[backend_id] = entry, entry.make()
    return _INSTANCES[backend_id][1]
