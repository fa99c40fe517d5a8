"""Pallas' own interpreter, as a function of arrays."""

import inspect
from collections.abc import Mapping
from typing import Any

from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret

_NAMES = [
    name
    for name, parameter in inspect.signature(pallas_call_hlo_interpret).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
]


def interpreted(params: Mapping[str, Any], *operands: Any) -> list[Any]:
    """The outputs of a Pallas call with some parameters, without the call."""
    chosen: dict[str, Any] = {name: params.get(name) for name in _NAMES}
    return list(pallas_call_hlo_interpret(*operands, **chosen))
