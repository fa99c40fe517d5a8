"""Infers whether a kernel that names no language is for GPUs or for TPUs only: by where it lowers."""

from collections.abc import Mapping, Sequence

from kerneltest.core.failures import Failure
from kerneltest.start.command_progress import TimeLimitError
from kerneltest.start.trace_probe import LengthSlot, Probe

BACKENDS = {"gpu": "lower:sm_90", "tpu": "lower:tpu-v5e"}
_OTHERS = (17, 129)  # lengths that no language favours


def infer_target(probe: Probe, dims: Mapping[str, Sequence[LengthSlot]]) -> str:
    """Returns `gpu` or `tpu` if a kernel lowers for only one of them; "" if it names a language, or fits both or none.

    The call itself decides, or else calls with other lengths of one dim each. A kernel that lowers for both, but not at
    all lengths, is for the target that accepts more lengths, provided that it accepts all of them.
    """
    try:
        if probe.traced.dialects != {"any"}:
            return ""
        here = [name for name, backend in BACKENDS.items() if probe.lowers_on(backend, {})]
        if len(here) < 2:
            return "".join(here)
        fitting = dict.fromkeys(BACKENDS, True)
        for slots in dims.values():
            for length in _OTHERS:
                changed = dict.fromkeys(slots, length)
                if probe.trace_lengths(changed) is None:
                    continue
                for name, backend in BACKENDS.items():
                    fitting[name] = fitting[name] and probe.lowers_on(backend, changed)
            if not all(fitting.values()):
                break
        return next(name for name in fitting if fitting[name]) if sum(fitting.values()) == 1 else ""
    except (Failure, TimeLimitError):
        return ""
