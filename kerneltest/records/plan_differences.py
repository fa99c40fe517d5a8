"""Differences between the plans of two runs."""

from collections.abc import Iterator

from kerneltest.records.schema import Plan

# Facts that make numbers differ though no kernel changed. The driver and Python may differ from machine to machine.
_ALWAYS = ("jax", "jaxlib", "machine")
_IF_BOTH = ("jax_enable_x64", "jax_default_matmul_precision")  # older plans lack them
_OF_BACKENDS = ("platform", "device", "triton", "jax-cuda13-plugin")


def plan_differences(old: Plan, new: Plan) -> Iterator[tuple[str, object, object]]:
    """Yields the settings and facts that could explain other results by themselves: name, old value, new value."""
    pairs = [(name, getattr(old, name), getattr(new, name)) for name in ("seed", "depth", "fuzz", "orders", "budget")]
    for key in dict.fromkeys([*old.environment, *new.environment]):
        backend, _, fact = key.rpartition(": ")
        # A backend that only one run had is not a difference of environment: its cells show it.
        both = key in old.environment and key in new.environment
        compared = key in _IF_BOTH or (backend and fact in _OF_BACKENDS)
        if key in _ALWAYS or (compared and both):
            pairs.append((key, old.environment.get(key, "unknown"), new.environment.get(key, "unknown")))
    yield from ((name, before, after) for name, before, after in pairs if before != after)
