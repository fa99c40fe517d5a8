"""Runs exported kernels, one after another; a process under a tool of `tools`. Knows nothing of the user's code.

Its first line says which device to use, and the others which case to run: a pickled `jax.export.Exported` and the bytes
of its inputs. Inputs and outputs lie in memory of exactly their size, which outputs get by donation.
"""

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kerneltest.extensions.sanitizer.memory import Carved, Driver

try:
    import jax.experimental.mosaic.gpu  # it registers what runs its kernels
except Exception as error:
    print(f"no Mosaic GPU kernels here: {error}", file=sys.stderr)


class _Runner:
    """The device of this process, and the memory of the cases on it.

    Args:
      settings: `platform` and `device`, which is its number there; `x64`, JAX's setting; `zone`, the bytes of each.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        jax.config.update("jax_enable_x64", settings["x64"])
        number = settings["device"]
        self.device = jax.devices(settings["platform"])[number]
        self.driver = Driver(settings["platform"], self.device.local_hardware_id)
        self.zone = settings["zone"]
        jax.block_until_ready(jax.device_put(np.zeros(1, np.float32), self.device))

    def run(self, folder: Path) -> dict[str, Any]:
        """Where the arrays lay, and which zones around them were written to."""
        exported = pickle.loads((folder / "exported.pickle").read_bytes())
        given = [(tuple(a.shape), np.dtype(a.dtype)) for a in exported.in_avals]
        made = [(tuple(a.shape), np.dtype(a.dtype)) for a in exported.out_avals]
        inputs = [self._carved(*each) for each in given]
        outputs = [self._carved(*each) for each in made]
        for number, carved in enumerate(inputs):
            if carved is not None:
                self.driver.put(carved.address, np.fromfile(folder / f"{number}.bin", np.uint8))

        def call(leaves: list[Any], into: list[Any]) -> list[Any]:
            cast = jax.lax.bitcast_convert_type
            taken = [x if x.dtype == dtype else cast(x, dtype) for x, (_, dtype) in zip(leaves, given, strict=True)]
            results = jax.tree_util.tree_leaves(exported.call(*taken))
            return [x if x.dtype == i.dtype else cast(x, i.dtype) for x, i in zip(results, into, strict=True)]

        try:
            with jax.default_device(self.device):
                leaves, into = self._arrays(inputs, given), self._arrays(outputs, made)
                compiled = jax.jit(call, donate_argnums=1, keep_unused=True).lower(leaves, into).compile()
                results = jax.block_until_ready(compiled(leaves, into))
        except Exception as error:  # after which the device is of no more use to this process
            places = [["input", i, c.address, c.size] for i, c in enumerate(inputs) if c is not None]
            places += [["output", i, c.address, c.size] for i, c in enumerate(outputs) if c is not None]
            return {"error": f"{type(error).__name__}: {error}", "arrays": places}
        mine = {carved.address for carved in outputs if carved is not None}
        left = [i for i, x in enumerate(results) if x.size and x.unsafe_buffer_pointer() not in mine]
        # Which of two outputs of a kind XLA put where is its own choice.
        order = {x.unsafe_buffer_pointer(): i for i, x in enumerate(results) if x.size}
        named = [("input", i, c) for i, c in enumerate(inputs) if c is not None]
        named += [("output", order.get(c.address, i), c) for i, c in enumerate(outputs) if c is not None]
        told = {
            "arrays": [[what, number, c.address, c.size] for what, number, c in named],
            "changed": [[what, number, *each] for what, number, c in named for each in c.changed()],
            "elsewhere": left,
        }
        del leaves, into, results
        for _, _, carved in named:
            carved.close()
        return told

    def _carved(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Carved | None:
        return Carved(self.driver, shape, _known(dtype), self.zone) if np.prod(shape) else None

    def _arrays(self, carved: list[Carved | None], kinds: list[Any]) -> list[Any]:
        return [
            jax.dlpack.from_dlpack(each) if each is not None else jnp.zeros(shape, _known(dtype))
            for each, (shape, dtype) in zip(carved, kinds, strict=True)
        ]


def _known(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What an array is handed to JAX as: NumPy has no code for bfloat16 and its like."""
    return dtype if dtype.type.__module__ == "numpy" else np.dtype(f"u{dtype.itemsize}")


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no answer
    runner: _Runner | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if runner is None:
                runner = _Runner(request)
                answer: dict[str, Any] = {}
            else:
                answer = runner.run(Path(request["folder"]))
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
