"""Reads, writes and atomic operations on references."""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

from .base import BITWISE, DTYPES, NUMBERS, SCALAR, VECTOR, Probe, first_available

_WHOLE, _HALF = pl.ds(0, 16), pl.ds(0, 8)


def probes() -> Iterator[Probe]:
    """Of groups `memory` and `atomic`."""
    mask = (VECTOR, "bool")
    yield _memory("get, swap[whole]", _copy)
    yield _memory("get[one element]", _get_element)
    yield _memory("get[dynamic slice]", _get_dynamic_slice, VECTOR, (SCALAR, "int32"))
    yield _memory("get[strided]", _get_strided)
    yield _memory("get[integer array]", _get_by_array, VECTOR, (VECTOR, "int32"))
    yield _memory("addupdate", _add_update((_WHOLE,)))
    yield _memory("addupdate[whole]", _add_update(...))
    yield _memory("swap", _swap)
    yield _memory("masked_load", _masked_load, VECTOR, mask)
    yield _memory("masked_load[other]", _masked_load_other, VECTOR, mask)
    yield _memory("masked_load[cache]", _hinted_load(cache_modifier=".cg"))
    yield _memory("masked_load[eviction]", _hinted_load(eviction_policy="evict_last"))
    yield _memory("masked_store", _masked_store, VECTOR, mask)

    for name in "add max min and or xor xchg".split():
        dtypes = BITWISE if name in ("and", "or", "xor") else DTYPES
        yield Probe(f"atomic_{name}", "atomic", _atomic(name, (_WHOLE,)), dtypes, (VECTOR,), VECTOR)
    yield Probe("atomic_add[one element]", "atomic", _atomic("add", (3,)), NUMBERS, (VECTOR,), VECTOR)
    yield Probe("atomic_cas", "atomic", _compare_and_swap, DTYPES, (SCALAR,), SCALAR)


def _memory(name: str, body: Callable[..., Any], *operands: Any) -> Probe:
    return Probe(name, "memory", body, DTYPES, operands or (VECTOR,), VECTOR)


def _copy(x: Any, o: Any) -> None:
    o[...] = x[...]


def _get_element(x: Any, o: Any) -> None:
    o[...] = jnp.full((16,), x[3])


def _get_dynamic_slice(x: Any, i: Any, o: Any) -> None:
    o[_HALF] = x[pl.ds(i[()], 8)]


def _get_strided(x: Any, o: Any) -> None:
    o[_HALF] = x[pl.ds(0, 8, 2)]


def _get_by_array(x: Any, i: Any, o: Any) -> None:
    o[...] = x[i[...]]


def _add_update(index: Any) -> Callable[[Any, Any], None]:
    def body(x: Any, o: Any) -> None:
        # Before JAX 0.7 it was not public, and `o[index] += x` is a read and a write.
        first_available("jax.ref.addupdate", "jax._src.state.primitives.ref_addupdate")(o, index, x[...])

    return body


def _swap(x: Any, o: Any) -> None:
    first_available("jax.ref.swap", "pl.swap")(o, (_WHOLE,), x[...])


def _load(ref: Any, index: Any, **options: Any) -> Any:
    """`load`, which at first took the indices apart from the reference."""
    if hasattr(plt, "load"):
        return plt.load(ref.at[index], **options)
    return first_available("pl.load")(ref, index, **options)


def _masked_load(x: Any, m: Any, o: Any) -> None:
    o[...] = _load(x, (_WHOLE,), mask=m[...])


def _masked_load_other(x: Any, m: Any, o: Any) -> None:
    o[...] = _load(x, (_WHOLE,), mask=m[...], other=np.zeros((), x.dtype))


def _hinted_load(**hint: str) -> Callable[[Any, Any], None]:
    def body(x: Any, o: Any) -> None:
        o[...] = _load(x, (_WHOLE,), **hint)

    return body


def _masked_store(x: Any, m: Any, o: Any) -> None:
    if hasattr(plt, "store"):
        plt.store(o.at[(_WHOLE,)], x[...], mask=m[...])
    else:  # at first it took the indices apart from the reference
        first_available("pl.store")(o, (_WHOLE,), x[...], mask=m[...])


def _atomic(name: str, index: Any) -> Callable[..., None]:
    def body(x: Any, o: Any) -> None:
        first_available(f"plt.atomic_{name}", f"pl.atomic_{name}")(o, index, x[index])

    return body


def _compare_and_swap(x: Any, o: Any) -> None:
    o[...] = first_available("plt.atomic_cas", "pl.atomic_cas")(x, x[()], x[()])
