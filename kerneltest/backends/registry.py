"""The backends there are, by id. Loading it imports neither NumPy nor JAX; resolving a backend imports its module."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from inspect import isabstract
from typing import TYPE_CHECKING, Any

from kerneltest.core.targets import TARGETS, TPUS, Tier

if TYPE_CHECKING:
    from kerneltest.backends.base import Backend

ALL = "all"


@dataclass(frozen=True, slots=True)
class Entry:
    """A backend that can be asked for.

    Attributes:
      id: as users select it and records name it.
      home: the module that defines it.
      make: the backend, on first use.
      in_all: whether `all` stands for it too; others are asked for by name or pattern.
    """

    id: str
    home: str
    make: Callable[[], "Backend"]
    in_all: bool


def _entry(id: str, home: str, *arguments: Any, in_all: bool = True) -> Entry:  # noqa: A002
    """An entry of a class in `kerneltest.backends`, named as `module:Class`, which takes the id and more arguments."""

    module, _, name = f"kerneltest.backends.{home}".partition(":")

    def make() -> "Backend":
        made: Backend = getattr(import_module(module), name)(id, *arguments)
        return made

    return Entry(id, module, make, in_all)


# In the order of reports: from the interpreters to the devices. `all` has one target of each kind where it takes
# milliseconds, and no compiler.
_ENTRIES = [
    _entry("interpret", "interpret:Interpret"),
    _entry("interpret-mosaic-gpu", "mosaic:InterpretMosaic", "mosaic_gpu"),
    _entry("interpret-tpu", "mosaic:InterpretMosaic", "mosaic_tpu"),
    *(
        _entry(f"lower:{target}", "codegen.tiers:Lower", target, in_all=str(target) in ("sm_90", "gfx942", "gfx1151"))
        for target in TARGETS.values()
    ),
    *(_entry(f"lower:{tpu}", "tpu.tiers:LowerTpu", tpu, in_all=str(tpu) == "tpu-v5e") for tpu in TPUS.values()),
    *(_entry(f"compile:{target}", "codegen.tiers:Compile", target, in_all=False) for target in TARGETS.values()),
    *(_entry(f"compile:{tpu}", "tpu.tiers:CompileTpu", tpu, in_all=False) for tpu in TPUS.values()),
    _entry("compile:xla-sm_90", "codegen.xla:XlaCompile", TARGETS["sm_90"], in_all=False),
    *(
        _entry(f"simulate:{target}", "simulate.simulate:Simulate", target, in_all=str(target) in ("sm_90", "gfx942"))
        for target in TARGETS.values()
    ),
    _entry("cuda", "device:Device", frozenset({"mosaic_tpu"})),
    _entry("rocm", "device:Device", frozenset({"mosaic_tpu", "mosaic_gpu"})),
    _entry("tpu", "device:Device", frozenset({"triton", "mosaic_gpu"})),
]
REGISTRY = {entry.id: entry for entry in _ENTRIES}


def backend(id: str, *, in_all: bool = False) -> Callable[[type["Backend"]], type["Backend"]]:  # noqa: A002
    """Registers a class of yours as a backend; in the root folder's `conftest.py`, so that `--kt-backends` knows it.

        @kt.backend("my-simulator")
        class MySimulator(kt.Backend):
            tier = kt.Tier.SIMULATE

            def prepare(self, traced):
                return MyExecutable(traced)  # has `precision` and `run(leaves)`

    Args:
      id: as users select it and records name it.
      in_all: whether `all`, the default of `--kt-backends`, stands for it too.

    Raises:
      ValueError: the id is taken, or is not one word; or the class does not say its tier, or has no `prepare`.
    """
    if not id or set(id) & set(" ,*?[]"):
        raise ValueError(f"backend: the id {id!r} must be one word without commas and wildcards")

    def register(made: type["Backend"]) -> type["Backend"]:
        def make() -> "Backend":
            instance = made()
            object.__setattr__(instance, "id", id)  # which a frozen dataclass allows too
            checked: Backend = import_module("kerneltest.backends.user_backend").UserBackend(instance, id)
            return checked

        if id in REGISTRY and REGISTRY[id].home != made.__module__:
            raise ValueError(f"backend: the id {id!r} is taken by {REGISTRY[id].home}")
        if not isinstance(getattr(made, "tier", None), Tier):
            raise ValueError(f"backend: {made.__name__} must say its tier, as in `tier = kt.Tier.DEVICE`")
        if isabstract(made):
            raise ValueError(f"backend: {made.__name__} must define `prepare`")
        REGISTRY[id] = Entry(id, made.__module__, make, in_all)
        return made

    return register


def backend_ids(words: Sequence[str]) -> tuple[str, ...]:
    """The ids that some words stand for: ids, patterns such as `lower:*`, or `all`.

    Raises:
      ValueError: a word that stands for none; lists the known ones.
    """
    chosen: dict[str, None] = {}
    for word in words:
        matching = [e.id for e in REGISTRY.values() if (e.in_all if word == ALL else fnmatchcase(e.id, word))]
        if not matching:
            known = dict.fromkeys(without_target(each) for each in REGISTRY)
            raise ValueError(
                f"unknown backend {word!r}; known are {', '.join(known)} (TARGET is one of "
                f"{', '.join([*TARGETS, *TPUS])}), patterns such as 'lower:*', or 'all'"
            )
        chosen |= dict.fromkeys(matching)
    return tuple(chosen)


def without_target(backend_id: str) -> str:
    """An id as help shows it, in which TARGET stands for all of them: `lower:TARGET`."""
    tier, _, target = backend_id.partition(":")
    return f"{tier}:TARGET" if target in TARGETS or target in TPUS else backend_id


def in_order(ids: Iterable[str]) -> list[str]:
    """Backend ids, each once, as tables show them: from the interpreters to the devices, unknown ones last."""
    known = list(REGISTRY)
    return sorted(dict.fromkeys(ids), key=lambda each: known.index(each) if each in REGISTRY else len(known))


def resolve(words: Sequence[str], orders: int = 0) -> tuple["Backend", ...]:
    """The backends that some ids or patterns stand for, in this order.

    Args:
      words: ids and patterns.
      orders: on simulators, in how many random orders programs are also run one after another.

    Raises:
      ValueError: an unknown id; lists the known ones.
    """
    return tuple(_made(each).in_orders(orders) for each in backend_ids(words))


_MADE: dict[str, tuple[Entry, "Backend"]] = {}


def _made(backend_id: str) -> "Backend":
    entry = REGISTRY[backend_id]
    if backend_id not in _MADE or _MADE[backend_id][0] is not entry:
        _MADE[backend_id] = entry, entry.make()
    return _MADE[backend_id][1]
