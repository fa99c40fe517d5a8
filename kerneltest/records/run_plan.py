"""The plan of a run, written before anything runs, and its end, written last."""

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kerneltest.core.details import InternalError
from kerneltest.core.fingerprint import names_in
from kerneltest.core.source_location import relative_path
from kerneltest.core.targets import Tier
from kerneltest.declare.arguments import Argument, ArrayArgument, DimSize, Optional, Static, Tree
from kerneltest.declare.dims import Dim
from kerneltest.declare.domains import Domain, Interval
from kerneltest.declare.pairing import Pairing
from kerneltest.records.evidence import Count


class CellKey(NamedTuple):
    """The key of a cell: the cases that a report counts together."""

    pairing: str
    backend: str
    dtype: str
    family: str


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """The plan of one pytest item."""

    item: str  # its node id
    # pairing, backend, tier, dtype, group: its parts; dtype and group are "*" if the machine lacks the backend
    pairing: str
    backend: str
    tier: Tier
    dtype: str
    group: str
    families: Mapping[str, Count]  # number of cases by family
    # the `digest_ids` of these cases' ids by family; none if the ids follow from the run itself
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def cells(self) -> Mapping[CellKey, int]:
        return {CellKey(self.pairing, self.backend, self.dtype, name): count for name, count in self.families.items()}


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """A backend that does not apply to a kernel, so that no items are planned for it."""

    # pairing, backend: of the cell
    pairing: str
    backend: str
    reason: str  # the reason in words
    cases: Count  # number of cases that it would have had


def digest_ids(cases: Iterable[str]) -> str:
    """Returns twelve hexadecimal digits that identify a set of case ids, in any order."""
    return hashlib.sha256(" ".join(sorted(cases)).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run, written last. A run without it counts as interrupted."""

    run: str  # the run's id, as in its plan
    records: Count  # number of records written
    failed_tests: tuple[str, ...] = ()  # tests other than pairings that failed, and files that could not be collected


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The text of a function and of the functions in its file that it names."""

    file: str  # relative to the folder that pytest ran in, if it lies below
    # first line and text of each function: its own, then the others in the file's order; none if Python has no source
    parts: tuple[tuple[Count, str], ...]


@dataclass(frozen=True, slots=True)
class PairingSummary:
    """A pairing as it is declared."""

    declaration: Mapping[str, str]  # arguments, dims and semantics by name, in words
    # kernel, oracle: their sources
    kernel: FunctionSource
    oracle: FunctionSource
    blocks: Mapping[str, Count] = field(default_factory=dict)  # the kernel's block length by dim, in elements
    # of the kernel's jaxprs and of the oracle's values, by which shards are recognised; "" in a whole run
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Project:
    """The project that a run tests."""

    name: str = ""  # in pyproject.toml, or else of its folder; "" if unknown
    commit: str = ""  # its first twelve hexadecimal digits, and whether files had changed since; "" if unknown


UNKNOWN_PROJECT = Project()


@dataclass(frozen=True, slots=True)
class Plan:
    """A run's plan, written before anything runs."""

    items: tuple[PlannedItem, ...]  # in order
    # seed, depth: of the run
    seed: int
    depth: str
    environment: Mapping[str, str]  # versions and devices
    unavailable: Mapping[str, str]  # reason by backend that the machine lacks
    xfail: Mapping[str, tuple[str, ...]]  # declared xfails by pairing, as text
    not_applicable: tuple[NotApplicable, ...] = ()  # backends that do not apply to a pairing's kernel
    fuzz: Count = 0  # number of cases drawn for each pairing and dtype
    prove: bool = False  # whether kernels are also proved over all sizes
    sanitize: tuple[str, ...] = ()  # the tools under which device cases also run
    orders: Count = 0  # number of random orders in which simulators also run programs
    budget: Count = 0  # seconds for each pairing and backend, beyond which cases are left out; 0 for no limit
    shard: str = ""  # the part of a run that it is, as `2/3`; "" for a whole run
    whole: str = ""  # for a shard, a digest of the items of all shards
    elsewhere: tuple[PlannedItem, ...] = ()  # for a shard, the items of the other shards
    run: str = ""  # the run's id
    problems: tuple[str, ...] = ()  # errors in the collection, such as a pairing that no module holds
    # exceptions of kerneltest while it planned pairings, which therefore have no items
    internal_errors: tuple[InternalError, ...] = ()
    started: str = ""  # start time in UTC in ISO 8601; "" if unknown. It orders the runs of a report
    pairings: Mapping[str, PairingSummary] = field(default_factory=dict)  # the declaration of each pairing
    project: Project = UNKNOWN_PROJECT  # the tested project


# Facts that make numbers differ though no kernel changed. The driver and Python may differ from machine to machine.
_ALWAYS = ("jax", "jaxlib", "machine", "jax_enable_x64", "jax_default_matmul_precision")
_OF_BACKENDS = ("platform", "device", "triton", "jax-cuda13-plugin")


def plan_differences(old: Plan, new: Plan) -> Iterator[tuple[str, object, object]]:
    """Yields the settings and facts that could explain other results by themselves: name, old value, new value."""
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in ("seed", "depth", "fuzz", "orders", "budget")]
    for key in dict.fromkeys([*old.environment, *new.environment]):
        backend, _, fact = key.rpartition(": ")
        # A backend that only one run had is not a difference of environment: its cells show it.
        both = key in old.environment and key in new.environment
        if key in _ALWAYS or (both and backend and fact in _OF_BACKENDS):
            pairs.append((key, old.environment.get(key, "unknown"), new.environment.get(key, "unknown")))
    yield from ((name, before, after) for name, before, after in pairs if before != after)


# A pairing's declaration and source code as text, for reports.


def describe_pairing(pairing: Pairing) -> PairingSummary:
    """Returns a pairing's declaration in words, with the sources of its kernel and oracle."""
    words = {name: _argument(argument) for name, argument in pairing.arguments.items()}
    words |= {f"dim {name}": _dim(each) for name, each in pairing.dims.items()}
    words["tolerance"] = str(pairing.tolerance)
    if pairing.all_masked:
        words["where everything is masked"] = pairing.all_masked
    if pairing.where:
        words["where"] = f"a relation between {', '.join(pairing.where.parameters)}"
    if pairing.backends:
        words["backends"] = ", ".join(pairing.backends)
    if pairing.signed_zeros:
        words["signed zeros"] = "compared"
    if not pairing.reproducible:
        words["reproducible"] = "no: the same inputs may give other bits"
    if pairing.returns:
        words["returns"] = ", ".join(pairing.returns)
    blocks = {name: dim.block for name, dim in pairing.dims.items() if dim.block}
    return PairingSummary(words, source_of(pairing.kernel), source_of(pairing.oracle), blocks)


def source_of(function: Callable[..., Any]) -> FunctionSource:
    """Returns the text of a function, jitted or partial, and of the functions in its module that it names."""
    innermost = innermost_function(function)
    code = getattr(innermost, "__code__", None)
    if code is None:
        return FunctionSource("", ())
    module = sys.modules.get(innermost.__module__)
    try:
        own, *others = dict(_parts(innermost, vars(module) if module else {}, set())).items()
    except (OSError, TypeError):  # defined at a prompt or by exec
        return FunctionSource(relative_path(code.co_filename), ())
    return FunctionSource(relative_path(code.co_filename), (own, *sorted(others)))


def _parts(function: Any, names: dict[str, Any], seen: set[str]) -> Iterator[tuple[int, str]]:
    lines, first = inspect.getsourcelines(function)
    yield first, "".join(lines)
    for name in sorted(set(names_in(function.__code__)) - seen):
        seen.add(name)
        other = innermost_function(names.get(name))
        if inspect.isfunction(other) and other.__module__ == function.__module__ and other is not function:
            yield from _parts(other, names, seen)


def innermost_function(function: Any) -> Any:
    """Returns the function that decorators and partials wrap."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return inspect.unwrap(function)
    except ValueError:
        return function


def _argument(argument: Argument) -> str:
    match argument:
        case ArrayArgument():
            axes = " ".join(map(str, argument.shape)) or "no axes"
            of = f" into {argument.bounded_by}" if argument.bounded_by is not None else ""
            of += f" from {argument.least} on" if argument.least else ""
            of += f" or {argument.sentinel}" if argument.sentinel is not None else ""
            of += f", {argument.structure.__name__}," if argument.structure else ""
            from_others = f" from {', '.join(argument.derivation.parameters)}" if argument.derivation else ""
            text = f"{argument.kind.noun} [{axes}]{of} of {', '.join(argument.dtypes)}{from_others}"
            elsewhere = (f"on {pattern} of {', '.join(dtypes)}" for pattern, dtypes in argument.on.items())
            return "; ".join([f"{text}{_domain(argument.domain)}", *elsewhere])
        case DimSize():
            return f"the length of {argument.dim}"
        case Static():
            return f"one of {', '.join(name for name, _ in argument.options)}"
        case Optional():
            return f"{_argument(argument.argument)}, or absent"
        case Tree():
            return f"tree of {'; '.join(f'{path}: {_argument(leaf)}' for path, leaf in argument.parts('_'))}"


def _domain(domain: Domain) -> str:
    if isinstance(domain, Interval):
        return "" if domain.everything else f", {domain}"
    return "".join(f", {name} {each}" for name, each in domain.items() if not each.everything)


def _dim(each: Dim) -> str:
    if each.values:
        lengths = ", ".join(map(str, each.values))
    else:
        most = f" to {each.maximum}" if each.maximum is not None else ""
        lengths = f"from {each.minimum}{most}" + (f", a multiple of {each.multiple_of}" if each.multiple_of > 1 else "")
    lengths += f"; block {each.block}" if each.block else ""
    lengths += f"; {each.production} in production" if each.production else ""
    return "; ".join([lengths, *(f"on {pattern} {_dim(other)}" for pattern, other in each.on.items())])
