"""Windows of outputs and arguments, as the page's data holds them."""

import math
from typing import Any

from kerneltest.records.schema import Evidence, Window


def picture(evidence: Evidence) -> dict[str, Any] | None:
    """The output around the worst element, for the page to draw on the block grid; None if it was not kept."""
    window = evidence.window
    if window is None:
        return None
    return {
        **_window(window),
        "expected": [number(value) for value in window.expected],
        "bound": [number(float(f"{value:.3g}")) for value in window.bound],
        "wrong": window.wrong,
        "worst": list(evidence.index),
        "output": evidence.output,
    }


def inputs(evidence: Evidence) -> list[dict[str, Any]]:
    """The arguments around it."""
    return [_window(window) for window in evidence.inputs]


def number(value: float | int | bool | None) -> float | int | bool | str | None:
    """A number as strict JSON holds it: words for NaN and infinities, nine digits of a float."""
    if isinstance(value, float):
        return float(f"{value:.9g}") if math.isfinite(value) else str(value)
    return value


def _window(window: Window) -> dict[str, Any]:
    return {
        "name": window.name,
        "dtype": window.dtype,
        "shape": list(window.shape),
        "origin": list(window.origin),
        "extent": list(window.extent),
        "blocks": list(window.blocks),
        "values": [number(value) for value in window.values],
    }
