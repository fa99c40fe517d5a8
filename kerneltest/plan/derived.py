"""Arrays that follow from other arguments: made once these are known, and again whenever they change."""

import hashlib
from collections.abc import Mapping

import numpy as np

from kerneltest.core.dtypes import Array, dtype_named
from kerneltest.declare.pairing import Pairing
from kerneltest.plan.signatures import Signature


def derived(pairing: Pairing, signature: Signature, values: Mapping[str, Array]) -> dict[str, Array]:
    """All array arguments by path, those that follow from others made of them.

    Args:
      pairing, signature: what is called.
      values: the arguments, by path; what is there of those that follow from others is not looked at.

    Raises:
      ValueError: what an argument follows from made another shape.
    """
    known = {**pairing.chosen(dict(signature.statics)), **dict(signature.dims)}
    made = dict(values)
    for path, leaf in signature.leaves(pairing).items():
        if leaf.derivation is None:
            continue
        given = {name: values.get(name) for name in leaf.derivation.of if name in pairing.leaves}
        taken = {name: known[name] for name in leaf.derivation.of if name in known} | given
        if "rng" in leaf.derivation.of:
            digest = hashlib.sha256(path.encode())
            for each in given.values():
                digest.update(b"|" if each is None else np.ascontiguousarray(each).tobytes())
            taken["rng"] = np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest()[:8], "big")))
        value = np.asarray(leaf.derivation.function(**taken))
        if value.shape != (shape := signature.shape(leaf)):
            raise ValueError(f"{path!r} is declared with shape {shape} and follows from others with {value.shape}")
        made[path] = value.astype(dtype_named(dict(signature.dtypes)[path]))
    return made
