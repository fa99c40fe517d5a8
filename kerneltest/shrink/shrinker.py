"""The search for the smallest case that fails as a finding does: first its signature, then its values, then both again.

The order of preference among cases, and why the search ends, are in the docstring of `kerneltest.shrink`.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from kerneltest.core.details import Mismatch
from kerneltest.core.dtypes import Array, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.core.work_budget import COMPILED, JUDGED, WorkBudget, oracle_work
from kerneltest.declare.dims import Dim, dims_in, positions_along
from kerneltest.declare.pairing import ABSENT, Pairing
from kerneltest.execute.cache import Cache
from kerneltest.execute.invariant_group import INVARIANTS
from kerneltest.execute.item import Item, Outcome
from kerneltest.execute.runner import run_case
from kerneltest.execute.value_groups import SignatureGroup
from kerneltest.plan.cases import Case, signature_slots
from kerneltest.plan.explicit import AnyCase, ExplicitCase
from kerneltest.plan.signatures import Signature, dtype_groups
from kerneltest.plan.slots import Slot, fill_derived
from kerneltest.records.evidence import Element
from kerneltest.records.schema import Record
from kerneltest.trace.cost_model import estimate_work

# Simpler values: 0 and 1 if the case still fails with them, else small and round numbers.
#
# A `Simplifier` proposes one simpler value for each element of an argument. It leaves elements alone that are simple
# already, and returns only values that the argument may have.

Arguments = Mapping[str, Array]  # array arguments by path
# Takes an argument's values, and returns simpler ones of the same shape and dtype.
Simplifier = Callable[[Slot, Array], Array]


def count_nontrivial(arguments: Arguments) -> int:
    """Returns the number of elements that are neither 0 nor 1."""
    return sum(int(np.sum((wide != 0) & (wide != 1))) for wide in map(widen, arguments.values()))


def to_simplest(slot: Slot, values: Array) -> Array:
    """Returns an argument's simplest values: zeros, a mask that hides nothing, equal parts, indices in order."""
    return slot.kind.simplify(slot, values)


def _is_trivial(slot: Slot, values: Array) -> Array:
    return np.asarray((values == slot.nearest(0)) | (values == slot.nearest(1)))


def _nearest_to(number: int) -> Simplifier:
    # For numbers other than 0 and 1: this number, or the nearest one that the argument may have.
    return lambda slot, values: np.where(_is_trivial(slot, values), values, slot.nearest(number))


def _easier(make: Callable[[Array], Array]) -> Simplifier:
    # For numbers that are harder to read: those that a function makes of them in float64.
    def simplifier(slot: Slot, values: Array) -> Array:
        wide = np.asarray(widen(values), np.float64)
        with np.errstate(all="ignore"):
            low, high = (widen(slot.nearest(end)) for end in (-np.inf, np.inf))
            wanted = make(wide)
            # No number grows, so that sums of small integers stay exact.
            fits = (wanted >= low) & (wanted <= high) & (np.abs(wanted) <= np.ceil(np.abs(wide)))
            better = (
                ~_is_trivial(slot, values) & np.isfinite(wide) & np.isfinite(wanted) & (_rank(wanted) < _rank(wide))
            )
            made = np.where(fits & better, wanted, 0.0).astype(values.dtype)
            return np.where(fits & better & (widen(made) == wanted), made, values)

    return simplifier


def _first_digit(wide: Array) -> Array:
    scale = 10.0 ** np.floor(np.log10(np.abs(wide)))
    return np.asarray(np.trunc(wide / scale) * scale)  # 77 becomes 70


to_zero, to_one = _nearest_to(0), _nearest_to(1)
to_two, to_minus_one = _easier(lambda wide: np.full(wide.shape, 2.0)), _easier(lambda wide: np.full(wide.shape, -1.0))
to_power_of_two = _easier(lambda wide: np.copysign(np.exp2(np.floor(np.log2(np.abs(wide)))), wide))
to_one_digit, to_integer = _easier(_first_digit), _easier(np.rint)
# Each step's simplifiers, the preferred ones first.
SIMPLIFIERS: Sequence[Sequence[Simplifier]] = (
    (to_zero, to_one),
    (to_simplest,),
    (to_two, to_minus_one, to_power_of_two, to_one_digit, to_integer),
)


def _rank(numbers: Array) -> Array:
    # How hard numbers are to read, from 0 to 5.
    fraction = np.frexp(numbers)[0]
    whole = numbers == np.rint(numbers)
    with np.errstate(all="ignore"):
        digits = numbers / 10.0 ** np.floor(np.log10(np.abs(numbers)))
    kinds = [
        (numbers == 2) | (numbers == -1),
        whole & (np.abs(numbers) <= 10),
        np.abs(fraction) == 0.5,
        whole & (digits == np.rint(digits)),
        whole,
    ]
    return np.select(kinds, range(len(kinds)), len(kinds))


def simplifiable(pairing: Pairing, case: ExplicitCase, simplifiers: Sequence[Simplifier]) -> list[Array]:
    """Returns the elements that some functions would change, as indices into all arguments laid end to end."""
    slots = signature_slots(pairing, case.signature)
    found: list[Array] = []
    start = 0
    for path, values in case.arguments.items():
        differs = [_bits(_apply(slots[path], make, values)) != _bits(values) for make in simplifiers]
        found.append(start + np.flatnonzero(np.any(differs, axis=0)))
        start += values.size
    return found


def _bits(values: Array) -> Array:
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}").reshape(values.shape)


def simplify(pairing: Pairing, case: ExplicitCase, simplifier: Simplifier, chunk: Array) -> Arguments:
    """Returns the case's arguments with the elements of a chunk (indices from `simplifiable`) replaced."""
    slots = signature_slots(pairing, case.signature)
    arguments: dict[str, Array] = {}
    start = 0
    for path, values in case.arguments.items():
        inside = chunk[(chunk >= start) & (chunk < start + values.size)] - start
        start += values.size
        if inside.size and slots[path].kind.jointly_constrained:
            values = _apply(slots[path], simplifier, values)  # as a whole, since its elements depend on each other
        elif inside.size:
            flat = values.reshape(-1).copy()
            flat[inside] = _apply(slots[path], simplifier, values).reshape(-1)[inside]
            values = flat.reshape(values.shape)
        arguments[path] = values
    return fill_derived(pairing, case.signature, arguments, case.draw)


def _apply(slot: Slot, simplifier: Simplifier, values: Array) -> Array:
    # Elements that depend on each other only change to the simplest ones.
    if slot.kind.jointly_constrained and simplifier is not to_simplest:
        return values
    return slot.repair(simplifier(slot, values))


def simplifiable_choices(pairing: Pairing, signature: Signature) -> list[str]:
    """Returns the static arguments and the dtypes that are not the plainest.

    Static arguments are given by name, a dtype that several leaves share by the path of the first of them.
    """
    chosen = dict(signature.dtypes)
    first = {pairing.leaves[path].dtypes: path for path, _ in reversed(signature.dtypes)}
    dtypes = [path for group, path in first.items() if chosen[path] != _plainest(group)]
    return [name for name, option in signature.statics if option != _first_option(pairing, name)] + sorted(dtypes)


def simplify_choices(pairing: Pairing, signature: Signature, names: Collection[str]) -> Signature:
    """Returns the signature with the first option and the plainest dtype of what `simplifiable_choices` names."""
    groups = {leaf.dtypes for path, leaf in pairing.leaves.items() if path in names}
    chosen = dict.fromkeys(dtype_groups(pairing)[:1], signature.dtype)
    chosen |= {pairing.leaves[path].dtypes: dtype for path, dtype in signature.dtypes}
    chosen |= {group: _plainest(group) for group in groups}
    statics = {name: _first_option(pairing, name) if name in names else option for name, option in signature.statics}
    return Signature.from_choices(pairing, dict(signature.dims), statics, chosen)


def _plainest(dtypes: Sequence[str]) -> str:
    return "float32" if "float32" in dtypes else dtypes[0]


def _first_option(pairing: Pairing, static: str) -> str:
    return ABSENT if static in pairing.optionals else pairing.options()[static][0]


def with_lengths(pairing: Pairing, signature: Signature, lengths: Mapping[str, int]) -> Signature:
    """Returns the signature with other lengths of some dims, and of those that the pairing relates to them.

    Returns the signature unchanged if a dim would be longer, or if the pairing does not admit these lengths.
    """
    resized, old = signature.resized(pairing, lengths), dict(signature.dims)
    return signature if resized is None or any(n > old[name] for name, n in resized.dims) else resized


def candidate_lengths(dim: Dim, length: int) -> list[int]:
    """Returns admitted lengths below a given one, shortest first: 1, 2^i + 1, and those around one and two blocks.

    0 is left out, since a case without elements shows little.
    """
    block = dim.block or 16
    powers = [2**exponent + 1 for exponent in range(length.bit_length())]
    wanted = dim.values or map(dim.fit, [1, *powers, block, block + 1, 2 * block, 2 * block + 1])
    return sorted({each for each in wanted if dim.admits(each) and 0 < each < length})


def middle_length(dim: Dim, low: int, high: int) -> int | None:
    """Returns the admitted length halfway between two lengths; None if there is none.

    A dim with explicit `values` has none, since `candidate_lengths` returns all of them.
    """
    step = dim.multiple_of
    middle = -(-(low + high) // 2 // step) * step
    return middle if low < middle < high and dim.admits(middle) and not dim.values else None


def candidate_arguments(
    pairing: Pairing, case: ExplicitCase, signature: Signature, worst: Mapping[str, int], seed: int
) -> Iterator[Arguments]:
    """Yields arguments for a shorter signature: parts of the case's own, then the family's own values if there are any.

    The parts begin at the start, end at the end, and begin at the worst and at the most notable element. `worst` is the
    index of the case's worst element along some dims.
    """
    old, new = dict(case.signature.dims), dict(signature.dims)
    notable = _notable_place(pairing, case)
    starts: list[Callable[[str], int]] = [
        lambda name: 0,
        lambda name: old[name] - new[name],
        lambda name: min(worst.get(name, 0), old[name] - new[name]),
        lambda name: min(notable.get(name, 0), old[name] - new[name]),
    ]
    for start in starts:
        yield _part(pairing, case, signature, {name: start(name) + np.arange(new[name]) for name in new})
    filled = Case(case.pairing_id, pairing.name, signature, case.family, case.target, seed)
    slots = signature_slots(pairing, signature)
    if case.arguments and any(case.family.applies(slots[path]) for path in slots if case.target in ("", path)):
        made = filled.fill(pairing)
        if count_nontrivial(made) <= count_nontrivial(case.arguments):
            yield made


def stretched_arguments(pairing: Pairing, case: ExplicitCase, signature: Signature) -> Iterator[Arguments]:
    """Yields arguments for another signature: the case's own, repeated along axes that are longer there, or cut.

    The first begin at the start; the second, if an axis is shorter, end at the end.
    """
    old, new = dict(case.signature.dims), dict(signature.dims)
    for starts in ({}, {name: max(old[name] - length, 0) for name, length in new.items()}):
        positions = {name: (starts.get(name, 0) + np.arange(length)) % old[name] for name, length in new.items()}
        if not starts or any(starts.values()):
            yield _part(pairing, case, signature, positions)


def _notable_place(pairing: Pairing, case: ExplicitCase) -> dict[str, int]:
    # The first NaN or infinity, or else the largest number.
    found: dict[str, int] = {}
    for path, values in sorted(case.arguments.items(), key=lambda each: each[0] != case.target):
        if values.size:
            size = np.abs(np.asarray(widen(values), np.float64))
            at = np.unravel_index(int(np.argmax(np.where(np.isfinite(size), size, np.inf))), values.shape)
            for axis, index in zip(pairing.leaves[path].shape, at, strict=True):
                if isinstance(axis, str):
                    found.setdefault(axis, int(index))
    return found


def _part(pairing: Pairing, case: ExplicitCase, signature: Signature, positions: Mapping[str, Array]) -> Arguments:
    parts: dict[str, Array] = {}
    old = dict(case.signature.dims)
    for path, slot in signature_slots(pairing, signature).items() if case.arguments else ():
        leaf, values = pairing.leaves[path], case.arguments.get(path)
        if values is None:  # absent from the case
            parts[path] = slot.canonical()
            continue
        for place, axis in enumerate(leaf.shape):
            if any(len(positions[name]) != old[name] for name in dims_in(axis)):
                values = values.take(positions_along(axis, old, positions), place)
        bound = leaf.bounded_by if leaf.kind.pointwise and isinstance(leaf.bounded_by, str) else ""
        if bound and bool((np.diff(positions[bound]) > 0).all()):
            at = np.searchsorted(positions[bound], values)  # so that it still points at the same element
            values = at if leaf.sentinel is None else np.where(values == leaf.sentinel, values, at)
        elif leaf.kind.is_data:
            values = _convert(values, slot, exact=case.family.structural)
        parts[path] = slot.repair(values) if slot.shape == values.shape else slot.canonical()
    return fill_derived(pairing, signature, parts, case.draw) if parts else parts


def _convert(values: Array, slot: Slot, *, exact: bool) -> Array:
    # If `exact`, to values whose arithmetic is exact there.
    if values.dtype == slot.dtype:
        return values
    wide = widen(values)
    if exact:
        wide = np.clip(wide, -slot.exact_limit, slot.exact_limit)
    with np.errstate(all="ignore"):
        return slot.cast(wide)


# The test by which a smaller case shows the same failure as the original one.


def resembles(record: Record, other: Record) -> bool:
    """Checks whether two cases of a family fail in the same way.

    They do if their verdicts are equal, and, for wrong values, the output (or the argument of the gradient) and the
    kind of error of the worst element; for other failures, the essence of their details and the source line.
    """
    return record.verdict == other.verdict and _common_traits(record) == _common_traits(other)


def _common_traits(record: Record) -> tuple[object, ...]:
    evidence, detail = record.shown, record.detail
    if evidence.actual is not None and evidence.expected is not None:
        gradient_of = detail.gradient_of if isinstance(detail, Mismatch) else ""
        return evidence.output, gradient_of, _kind_of_error(evidence.actual, evidence.expected)
    return (detail.essence, detail.place) if detail is not None else ()


def _kind_of_error(actual: Element, expected: Element) -> str:
    got, wanted = float(actual), float(expected)
    if np.isfinite(got) and not np.isfinite(wanted):
        return f"finite, not {wanted}"
    if got == wanted == 0:
        return "wrong sign of zero"
    return "off" if np.isfinite(got) else str(got)


Excludes = Callable[[ExplicitCase, Record], bool]  # whether a case that fails in the same way has another bug
_SIGNATURE_SHARE = 0.6  # of the work, for signatures before values have had their turn
_MAX_FAILED_ATTEMPTS = 100  # consecutive failed attempts after which smaller chunks of elements are not tried
_ENDS_PROCESSES = (Verdict.HANG, Verdict.CRASH)


@dataclass(frozen=True, slots=True, eq=False)
class ShrinkResult:
    """The smallest case found, with the family and the target of the original one, and its last outcome.

    Attributes:
      nontrivial: number of elements of its array arguments that are neither 0 nor 1.
      attempts: number of cases judged.
      complete: True if no candidate was left; False if the budget was spent first.
    """

    case: ExplicitCase
    outcome: Outcome
    nontrivial: int
    attempts: int
    complete: bool


class _BudgetIsSpent(Exception):  # noqa: N818 - not an error
    # The work of a step of the search is done.
    pass


def minimize(
    item: Item, case: AnyCase, record: Record, cache: Cache, budget: WorkBudget, is_another: Excludes = lambda *_: False
) -> ShrinkResult | None:
    """Searches for the smallest case that fails as a finding does, in signature and values.

    Candidates are tried in the same order each time, without those of another bug. Nothing that the search compiles
    stays in the cache. The watchdog of the cache's journal ends a candidate that hangs, as in a run.

    Returns None if the case does not fail again, if it hung or crashed and so must not run again, or if there is
    nothing to shrink: neither values nor a planned signature.
    """
    try:
        arguments = item.group.arguments(item, case, cache)
    except Failure:
        return None
    if arguments is None and isinstance(item.group, SignatureGroup):
        arguments = {}
    if arguments is None or record.verdict in _ENDS_PROCESSES:
        return None
    search = _Search(item, case, record, cache, budget, is_another)
    whole, complete = budget.work, False
    with suppress(_BudgetIsSpent):
        if not search.fails(case.signature, arguments):
            return None
        budget.work = _SIGNATURE_SHARE * whole
        with suppress(_BudgetIsSpent):
            search.shorten()
        budget.work = whole
        search.simplify()
        while search.shorten() or search.simplify():
            continue
        complete = True
    return search.result(complete)


class _Search:
    def __init__(
        self, item: Item, case: AnyCase, record: Record, cache: Cache, budget: WorkBudget, is_another: Excludes
    ) -> None:
        self._item, self._record, self._is_another = item, record, is_another
        # Shares the run's pool and journal, but adds to copies, so that nothing is left in the run's cache.
        self._cache = cache.branch()
        self._budget = budget
        self._seen: set[str] = set()
        self._work: dict[Signature, float] = {}  # of a run of the kernel, for each signature that is compiled
        self._failing: list[tuple[ExplicitCase, Outcome]] = []
        draw = case.draw if isinstance(case, ExplicitCase) else case.entropy
        self._template = ExplicitCase(
            item.pairing_id, case.signature, {}, family=case.family, target=case.target, draw=draw
        )
        self.attempts = 0

    @property
    def case(self) -> ExplicitCase:
        return self._failing[-1][0]

    def fails(self, signature: Signature, arguments: Arguments) -> bool:
        # Such a case becomes the smallest so far.
        case = replace(self._template, signature=signature, arguments=arguments)
        if case.id in self._seen:
            return False
        if self._budget.is_over():
            raise _BudgetIsSpent
        self._seen.add(case.id)
        outcome = self._judge(case)
        if is_same := resembles(self._record, outcome.record) and not self._is_another(case, outcome.record):
            self._failing.append((case, outcome))
        return is_same

    def _judge(self, case: ExplicitCase) -> Outcome:
        self.attempts += 1
        outcome = run_case(replace(self._item, dtype=case.signature.dtype), case, self._cache)
        self._cache.expectations.cases.clear()
        if case.signature not in self._work:
            self._budget.spend(COMPILED)
            with suppress(Failure):
                traced = self._cache.traces.of(self._item.pairing, case.signature, self._item.backend)
                self._work[case.signature] = estimate_work(traced).seconds
        self._budget.spend(JUDGED + oracle_work(case.signature.volume) + self._work.setdefault(case.signature, 0.0))
        return outcome

    def result(self, complete: bool) -> ShrinkResult | None:
        # The smallest case that fails again when it is judged once more.
        while self._failing:
            case, _ = self._failing.pop()
            outcome = self._judge(case)
            if resembles(self._record, outcome.record):
                return ShrinkResult(case, outcome, count_nontrivial(case.arguments), self.attempts, complete)
        return None

    def shorten(self) -> bool:
        before = self.case
        pairing = self._item.pairing
        names = simplifiable_choices(pairing, self.case.signature)
        plainest = simplify_choices(pairing, self.case.signature, names)
        shorter = {
            name: lengths
            for name, length in self.case.signature.dims
            if (lengths := candidate_lengths(pairing.dims[name], length))
        }
        least = {name: lengths[0] for name, lengths in shorter.items()}
        if self._try_signature(with_lengths(pairing, plainest, least)):
            return True
        if not self._try_signature(plainest):
            for name in names:
                self._try_signature(simplify_choices(pairing, self.case.signature, [name]))
        if self._try_lengths(least):
            return True
        if not sum(map(self._shorten_dim, shorter)):
            # Some failures need several dims of equal length.
            steps = itertools.zip_longest(*shorter.values())
            together = ({name: n for name, n in zip(shorter, step, strict=True) if n} for step in steps)
            any(map(self._try_lengths, together))
        return self.case is not before

    def _shorten_dim(self, name: str) -> bool:
        dim, low = self._item.pairing.dims[name], 0
        before = self.case
        for length in candidate_lengths(dim, dict(before.signature.dims)[name]):
            if self._try_lengths({name: length}):
                break
            low = length
        while (middle := middle_length(dim, low, dict(self.case.signature.dims)[name])) is not None:
            if not self._try_lengths({name: middle}):
                low = middle
        return self.case is not before

    def _try_lengths(self, lengths: Mapping[str, int]) -> bool:
        return self._try_signature(with_lengths(self._item.pairing, self.case.signature, lengths))

    def _try_signature(self, signature: Signature) -> bool:
        invariant = INVARIANTS.get(self.case.family.name)
        pairing = self._item.pairing
        if signature == self.case.signature or (invariant and not invariant.applies(pairing, signature)):
            return False
        if not pairing.admits(dict(signature.dims), dict(signature.statics)):
            return False
        candidates = candidate_arguments(pairing, self.case, signature, self._worst_place(), self._item.seed)
        return any(self.fails(signature, arguments) for arguments in candidates)

    def _worst_place(self) -> dict[str, int]:
        _, outcome = self._failing[-1]
        evidence = outcome.record.shown
        shape = evidence.window.shape if evidence.window else ()
        places = list(zip(shape, evidence.index, strict=False))
        lengths = self.case.signature.dims
        return {name: index for name, length in lengths for other, index in reversed(places) if other == length}

    def simplify(self) -> bool:
        before = self.case
        for simplifiers in SIMPLIFIERS:
            self._reduce(simplifiers)
        return self.case is not before

    def _reduce(self, simplifiers: Sequence[Simplifier]) -> None:
        # Whole arguments first, then chunks of halving size.
        for number in range(len(self.case.arguments)):
            self._simplify_chunk(simplifiers, self._simplifiable(simplifiers)[number])
        size, in_vain = sum(map(len, self._simplifiable(simplifiers))), 0
        while size and in_vain < _MAX_FAILED_ATTEMPTS:
            left = np.concatenate(self._simplifiable(simplifiers))
            size = min(size, len(left))
            for start in range(0, len(left), max(size, 1)):
                in_vain = 0 if self._simplify_chunk(simplifiers, left[start : start + size]) else in_vain + 1
            size //= 2

    def _simplifiable(self, simplifiers: Sequence[Simplifier]) -> list[Array]:
        return simplifiable(self._item.pairing, self.case, simplifiers)

    def _simplify_chunk(self, simplifiers: Sequence[Simplifier], chunk: Array) -> bool:
        case = self.case
        return any(self.fails(case.signature, simplify(self._item.pairing, case, make, chunk)) for make in simplifiers)
