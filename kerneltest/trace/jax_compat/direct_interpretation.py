"""Pallas' general interpreter without the imports of those for Mosaic kernels.

JAX imports both of these, which takes a third of a second, to see that a call with `interpret=True` needs neither.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from jax._src.interpreters import mlir
from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret
from jax._src.pallas.pallas_call import pallas_call_p

_registered: Any = mlir._lowerings[pallas_call_p]
_lock = threading.Lock()
_entered = 0  # contexts that have not ended, in all threads


@contextmanager
def interpret_directly() -> Iterator[None]:
    """A context in which Pallas calls are lowered as JAX lowers them, but without importing what they do not need."""
    global _entered
    with _lock:
        _entered += 1
        mlir._lowerings[pallas_call_p] = replace(_registered, rule=_lower_call)
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if not _entered:
                mlir._lowerings[pallas_call_p] = _registered


def _lower_call(context: Any, *operands: Any, **params: Any) -> Any:
    """Lowers a Pallas call."""
    if params["interpret"] is not True or params["jaxpr"].constvars:
        return _registered.rule(context, *operands, **params)
    own = {name: value for name, value in params.items() if name != "interpret"}
    interpreter: Any = functools.partial(pallas_call_hlo_interpret, **own)
    lower: Any = mlir.lower_fun(interpreter, multiple_results=True)
    return lower(context, *operands)
