"""Elements of arguments that an oracle does not read, and values there that reveal a kernel that does.

An oracle does not read elements if replacing them leaves every bit of its outputs as it is. A search tries those that a
mask hides, then halves the array again and again.
"""

import functools
from collections import deque
from collections.abc import Mapping

import numpy as np

from kerneltest.core.dtypes import Array, ShapeDtype, is_float, widen
from kerneltest.core.failures import Failure
from kerneltest.core.verdicts import Verdict
from kerneltest.declare.kinds.base import Slot
from kerneltest.declare.pairing import Pairing
from kerneltest.oracle.evaluation import evaluate_oracle
from kerneltest.plan.cases import signature_slots
from kerneltest.plan.explicit import AnyCase

Arguments = Mapping[str, Array]

_MOST_TRIES = 64  # parts of an argument
_FAR = 2.0**40  # so large that a maximum, a comparison or a clipped value changes
_SPECIAL = {"NaN": np.nan, "infinity": np.inf, "-infinity": -np.inf}


@functools.lru_cache(maxsize=64)  # all backends share the cases
def poisoned_arguments(pairing: Pairing, case: AnyCase, outputs: tuple[ShapeDtype, ...]) -> Mapping[str, Arguments]:
    """Returns a case's data with other values where the oracle does not read them, by these values in words and path.

    Floats become NaN and infinite, whatever their domain is, unless it is `finite`; other data get the ends of their
    domain. The oracle's outputs remain those of the case. Data from which other arguments follow remain as they are.
    """
    arguments, poisoned = case.fill(pairing), dict[str, dict[str, Array]]()
    unchanged = {path: widen(value) for path, value in arguments.items()}

    def evaluate(changed: Arguments) -> bytes:
        wide = {**unchanged, **{path: widen(value) for path, value in changed.items()}}
        parts = evaluate_oracle(pairing, case.signature, wide, outputs)
        return b"|".join(value.tobytes() for part in parts for value in part)

    wanted = evaluate({})

    def is_unread(changed: Arguments) -> bool:
        try:
            return evaluate(changed) == wanted
        except Failure as failure:  # such as an oracle that checks its inputs
            if failure.verdict is Verdict.HANG:
                raise
            return False

    sources = {name for leaf in pairing.leaves.values() if leaf.derivation for name in leaf.derivation.parameters}
    for path, slot in signature_slots(pairing, case.signature).items():
        values, made = arguments[path], {} if path in sources else _poison(slot)
        found, parts = np.arange(0), [_hidden(pairing, path, arguments), np.arange(slot.size)]
        # Some numbers are only for the oracle, which may ignore the others though it reads the element.
        far = [np.asarray(number) for number in (-_FAR, _FAR, 0.0) if made and is_float(slot.dtype)]
        for number, filling in enumerate([*made.values(), *far]):
            if number and (not found.size or is_unread({path: _with(values, found, filling)})):
                continue  # as nearly always: the first one finds what is read
            left, parts, tries = deque(parts), [], 0
            while left and (tries := tries + 1) <= _MOST_TRIES:
                part = left.popleft()
                if is_unread({path: _with(values, part, filling)}):
                    parts.append(part)
                elif len(part) > 1:
                    left += np.array_split(part, 2)
            found = np.concatenate([np.arange(0), *parts])
        for words, filling in made.items() if found.size else ():
            poisoned.setdefault(words, {})[path] = _with(values, found, filling)
    return {words: changed for words, changed in poisoned.items() if is_unread(changed)}


def _with(values: Array, part: Array, filling: Array) -> Array:
    changed = values.astype(filling.dtype)  # a copy
    changed.reshape(-1)[part] = filling
    return changed


def _poison(slot: Slot) -> dict[str, Array]:
    """Returns numbers that an unread element becomes, by their names; none if it has such numbers anyway."""
    if not slot.kind.is_data or slot.kind.jointly_constrained:
        return {}
    if is_float(slot.dtype) and not slot.domain.finite:
        with np.errstate(all="ignore"):  # of formats without infinities
            special = {words: np.asarray(number).astype(slot.dtype) for words, number in _SPECIAL.items()}
        if kept := {words: n for words, n in special.items() if str(float(n)) == str(_SPECIAL[words])}:
            return kept
    if slot.domain.bounded or slot.domain.extremes:
        return {"the greatest number": slot.nearest(np.inf), "the least number": slot.nearest(-np.inf)}
    return {}


def _hidden(pairing: Pairing, path: str, arguments: Arguments) -> Array:
    """Returns the elements of an argument that a mask hides, as indices: it has axes in common with it."""
    axes, values = pairing.leaves[path].shape, arguments[path]
    hidden = np.zeros(values.shape, bool)
    for other, leaf in pairing.leaves.items():
        if leaf.kind.is_mask and other in arguments:
            free, common = list(range(len(leaf.shape))), dict[int, int]()
            for i in reversed(range(len(axes))):
                if (j := next((j for j in reversed(free) if leaf.shape[j] == axes[i]), None)) is not None:
                    common[i] = j
                    free.remove(j)
            masked = np.equal(arguments[other], np.asarray(leaf.mask_values[0]).astype(arguments[other].dtype))
            masked = masked.transpose([*free, *(common[i] for i in sorted(common))])
            hidden |= masked.all(axis=tuple(range(len(free)))).reshape(
                [n if i in common else 1 for i, n in enumerate(values.shape)]
            )
    return np.flatnonzero(hidden)
