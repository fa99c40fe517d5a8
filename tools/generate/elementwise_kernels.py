"""Elementwise kernels: blocks of every kind, broadcast and permuted operands, masks."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tools.generate.forms import random_expression
from tools.generate.generated_kernel import (
    PLAIN,
    PLAIN_AND_GPU,
    Draft,
    production,
    random_dtype,
    random_lengths,
)

_AXES = "abcd"
_BLOCKS = (None, 4, 8, 5, 16)  # None: the whole axis
_BLOCKS_OF_FOUR = (None, 1, 2, 4)  # of rank 4: few elements
_MOST_GRIDDED = 3  # axes of a grid that Triton has


@dataclass(frozen=True, slots=True)
class Operand:
    """An input of an elementwise kernel.

    Attributes:
      name: its name.
      axes: its axes in their order in memory, a part of those of the output.
      output: the axes of the output.
    """

    name: str
    axes: str
    output: str

    @property
    def broadcast(self) -> str:
        """The source that brings its axes into the output's order, with an axis of length 1 for each that it lacks."""
        order = "".join(sorted(self.axes, key=self.output.index))
        text = self.name
        if order != self.axes:
            text += f".transpose({', '.join(str(self.axes.index(axis)) for axis in order)})"
        if self.axes and len(self.axes) < len(self.output):
            text += f"[{', '.join(':' if axis in self.axes else 'None' for axis in self.output)}]"
        return text


@production
def elementwise(rng: random.Random) -> Draft:
    """A function of one to three inputs in blocks, of rank 0 to 4, with some of the output's axes in some order."""
    dtype = random_dtype(rng)
    axes = _AXES[: rng.choice((0, 1, 2, 2, 3, 4))]
    operands = [Operand("x", axes, axes)]
    for name in "yz"[: rng.randint(0, 2)]:
        some = [axis for axis in axes if rng.random() < 0.6]
        rng.shuffle(some)
        operands.append(Operand(name, "".join(some), axes))
    blocks = {axis: rng.choice(_BLOCKS_OF_FOUR if len(axes) == len(_AXES) else _BLOCKS) for axis in axes}
    gridded = [axis for axis in axes if blocks[axis]]
    rng.shuffle(gridded)
    for axis in gridded[_MOST_GRIDDED:]:
        blocks[axis] = None
    del gridded[_MOST_GRIDDED:]
    expression = random_expression(rng, [each.name for each in operands])
    loads = "\n".join(f"        {each.name} = {_as_float32(each)}" for each in operands)
    shape = _tuple(axes)
    specs = ", ".join(_spec(each.axes, blocks, gridded) for each in operands)
    names = ", ".join(each.name for each in operands)
    body = f"""
def kernel({names}):
    {f"{shape} = x.shape" if axes else "assert not x.shape"}

    def body({", ".join(f"{each.name}_ref" for each in operands)}, o_ref):
{loads}
        o_ref[...] = ({expression.kernel}).astype(o_ref.dtype)

    return pl.pallas_call(
        body,
        grid={_tuple([f"pl.cdiv({axis}, {blocks[axis]})" for axis in gridded])},
        in_specs=[{specs}],
        out_specs={_spec(axes, blocks, gridded)},
        out_shape=jax.ShapeDtypeStruct({shape}, x.dtype),
    )({names})
"""
    on_gpus = 5 not in blocks.values()  # Triton's blocks are powers of two, and nothing masks their tails
    domain = expression.domain_on_gpus if on_gpus else expression.domain
    arguments = {each.name: f'kt.array("{" ".join(each.axes)}", {dtype}{domain})' for each in operands}
    dims = ", ".join(f"{axis}={_dim(rng, blocks[axis], on_gpus)}" for axis in axes)
    views = "\n".join(f"{each.name} = {each.broadcast}" for each in operands if each.broadcast != each.name)
    oracle = f"{views}\nreturn {expression.oracle}"
    features = {f"rank {len(axes)}", f"{len(operands)} inputs", f"grid of {len(gridded)} axes", *expression.forms}
    features |= {"broadcast"} if any(len(each.axes) < len(axes) for each in operands) else set()
    features |= {"permuted"} if any(each.axes != "".join(sorted(each.axes)) for each in operands) else set()
    options = {"dims": f"dict({dims})", "backends": PLAIN_AND_GPU if on_gpus else PLAIN}
    what = f"an elementwise function of {len(operands)} arrays of rank {len(axes)}"
    return Draft(what, body, arguments, options, oracle, frozenset(features))


def _dim(rng: random.Random, block: int | None, on_gpus: bool) -> str:
    on = f"on=dict(gpu=kt.dim(values=({block or 4}, {2 * (block or 4)})))" if on_gpus else ""
    return random_lengths(rng, block or 6, on)


def _as_float32(operand: Operand) -> str:
    loaded = f"{operand.name}_ref[...].astype(jnp.float32)"
    return operand.broadcast.replace(operand.name, loaded, 1)


def _spec(axes: str, blocks: dict[str, int | None], gridded: list[str]) -> str:
    shape = _tuple([str(blocks[axis] or axis) for axis in axes])
    names = ", ".join(f"i_{axis}" for axis in gridded)
    index = _tuple([f"i_{axis}" if blocks[axis] else "0" for axis in axes])
    return f"pl.BlockSpec({shape}, lambda {names}: {index})" if names else f"pl.BlockSpec({shape}, lambda: {index})"


def _tuple(parts: Sequence[str]) -> str:
    """Returns the source of a tuple."""
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
