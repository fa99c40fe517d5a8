"""The layout casts of a Mosaic GPU kernel that cannot hold together, for which JAX infers no layouts.

JAX's error names none of them. They are found by experiments on the module that it could not infer layouts for.
"""

import sys
import time
import traceback
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from jaxlib.mlir import ir

from kerneltest.core.failures import exception_text, iter_causes
from kerneltest.trace.jax_compat.mlir import operations_in

_SECONDS = 2.0
_CAST = "mosaic_gpu.layout_cast"
_NO_LAYOUTS = "Failed to infer a possible set of layouts"


def conflicting_casts(error: BaseException) -> list[tuple[str, str]]:
    """Returns a smallest set of casts without any of which JAX would infer layouts, or at least fail with less.

    Returns:
      The layout of each, and its location as MLIR prints it; none if the error is another one, if the module has no
      layouts without casts either, or if the search takes too long.
    """
    frames = [frame for cause in iter_causes(error) for frame, _ in traceback.walk_tb(cause.__traceback__)]
    found = next((frame for frame in reversed(frames) if frame.f_code.co_name == "infer_layout"), None)
    if found is None or _NO_LAYOUTS not in exception_text(error):
        return []
    options: dict[str, Any] = {name: found.f_locals[name] for name in ("fuel", "arch") if name in found.f_locals}
    with suppress(TimeoutError):
        return _smallest(found.f_locals["module"], found.f_globals["infer_layout"], options)
    return []


def _smallest(module: Any, infer: Any, options: dict[str, Any]) -> list[tuple[str, str]]:
    text, end = module.operation.get_asm(enable_debug_info=True), time.monotonic() + _SECONDS

    def fails(kept: Collection[int]) -> bool:
        if time.monotonic() > end:
            raise TimeoutError
        changed = ir.Module.parse(text)
        for number, cast in enumerate(list(_casts(changed))):
            if number not in kept:
                cast.results[0].replace_all_uses_with(cast.operands[0])
                cast.erase()
        try:
            infer(changed, **options)
        except ValueError as error:
            return _NO_LAYOUTS in str(error)
        return False

    with module.context, ir.Location.unknown():
        casts = list(_casts(module))
        kept = set(range(len(casts)))
        if fails(()):
            return []
        for number in range(len(casts)):
            if fails(kept - {number}):
                kept.discard(number)
        return [(_layout(casts[number]), str(casts[number].location)) for number in sorted(kept)]


def _casts(module: Any) -> Iterator[Any]:
    return (operation for operation in operations_in(module.operation) if operation.name == _CAST)


def _layout(cast: Any) -> str:
    layouts = sys.modules["jax.experimental.mosaic.gpu.layouts"]
    layout = layouts.from_layout_attr(cast.attributes["new_layout"])
    name = getattr(layouts, "pprint_layout", lambda layout: type(layout).__name__)  # since JAX 0.12
    return str(name(layout))
