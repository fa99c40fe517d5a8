"""What `kerneltest init` has found out about a kernel, and the file that says it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from kerneltest.core.dtypes import is_float, is_integer
from kerneltest.declare.dims import Dim
from kerneltest.plan.boundaries import boundary_lengths
from kerneltest.start.calls import Example, Kernel
from kerneltest.start.literals import Speller
from kerneltest.start.probe import Slot

WIDTH = 120


@dataclass(frozen=True, slots=True)
class Declaration:
    """All that the file of a pairing says.

    Attributes:
      kernel: to pair.
      example: a call of it.
      options: the values that each static argument had, the first being the example's.
      axes: of which dim each slot is, by name; slots of one length alone are left out.
      dims: by name.
      dtypes: in which all arrays of floats were seen together; () where a call mixes them.
      reals: the largest and the smallest numbers are left out, since products of them are.
      outputs: what comes out, spelled in dims.
      notes: what its author is to check, each in a line.
    """

    kernel: Kernel
    example: Example
    options: Mapping[str, Sequence[Any]]
    axes: Mapping[Slot, str]
    dims: Mapping[str, Dim]
    dtypes: tuple[str, ...]
    reals: bool
    outputs: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def oracle(self) -> str:
        return f"{self.kernel.name}_oracle"

    def axis(self, path: str, axis: int) -> str:
        """An axis of an array as its declaration spells it: a dim's name, or a length."""
        return self.axes.get(Slot(path, axis), str(self.example.leaves[path].shape[axis]))

    def shape(self, path: str) -> list[str]:
        """All axes of an array, spelled."""
        return [self.axis(path, axis) for axis in range(len(self.example.leaves[path].shape))]

    def source(self) -> str:
        """The text of the file."""
        speller = Speller()
        named = [*self.example.trees, *self.options]
        arguments = [f"{name}={self._argument(name, speller)}," for name in named]
        dims = {name: _dim(dim) for name, dim in self.dims.items() if dim != Dim()}
        if dims:
            arguments.append(f"dims=dict({', '.join(f'{name}={text}' for name, text in dims.items())}),")
        outermost = self.kernel.path.partition(".")[0]
        speller.imports[self.kernel.module, outermost] = None
        by_module: dict[str, list[str]] = {}
        for module, name in sorted(speller.imports):
            by_module.setdefault(module, []).append(name)
        imports = [f"from {module} import {', '.join(names)}" for module, names in by_module.items()]
        notes = [line for note in self.notes for line in _wrapped(note)]
        return "\n".join(
            [
                f'"""The pairing of {self.kernel.name}."""',
                "",
                *(["import numpy as np", ""] if any("np." in line for line in arguments) else []),
                "import kerneltest as kt",
                *imports,
                "",
                "",
                *(["# To check, since a trace cannot tell:", *notes] if notes else []),
                "@kt.oracle_for(",
                f"    {self.kernel.path},",
                *(f"    {line}" for each in arguments for line in _broken(each)),
                ")",
                f"def {self.oracle}({', '.join(named)}):",
                *(f"    {line}" for line in self._task()),
                f'    raise NotImplementedError("{self.oracle} is to be filled in")',
                "",
            ]
        )

    def _argument(self, name: str, speller: Speller) -> str:
        if name in self.options:
            dim = self.axes.get(Slot(name, None))
            return f'kt.dim_size("{dim}")' if dim else _static(name, self.options[name], speller)
        return self._tree(name, self.example.trees[name], speller)

    def _tree(self, name: str, branch: Any, speller: Speller) -> str:
        if isinstance(branch, str):
            return self._array(branch)

        def inside(each: Any) -> str:
            return self._array(each) if isinstance(each, str) else speller.container(name, each, inside)

        return f"kt.tree({speller.container(name, branch, inside)})"

    def _array(self, path: str) -> str:
        dtype, shape = self.example.leaves[path].dtype, " ".join(self.shape(path))
        made = f'kt.array("{shape}"' if shape else "kt.scalar("
        comma = ", " if shape else ""
        if dtype == np.bool_:
            blocks = any(self.dims[dim].block for dim in self.shape(path) if dim in self.dims)
            return f'kt.mask("{shape}")' if blocks else f'{made}{comma}"bool")'
        words = []
        if is_float(dtype):
            dtypes = self.dtypes or (str(dtype),)
            words.append(repr(dtypes) if len(dtypes) > 1 else f'"{dtypes[0]}"')
            if self.reals:
                words.append("domain=(-np.inf, np.inf)")
        else:
            words.append(f'"{dtype}"')
            if self.points(path):
                words.append(f"domain=(0, {self.least - 1})")
        return f"{made}{comma if words else ''}{', '.join(words)})".replace("'", '"')

    def points(self, path: str) -> bool:
        """Whether an array may hold positions or counts: integers, where others hold floats."""
        leaves = self.example.leaves
        return is_integer(leaves[path].dtype) and any(is_float(leaf.dtype) for leaf in leaves.values())

    @property
    def least(self) -> int:
        """The least length that a dim will have."""
        return min((min(boundary_lengths(dim)) for dim in self.dims.values()), default=1)

    def _task(self) -> list[str]:
        """What the oracle gets and must return, as a comment."""
        shapes = {path: ", ".join(self.shape(path)) for path in self.example.leaves}
        given = [f"{path} ({shape})" for path, shape in shapes.items()]
        gets = f"NumPy, floats in float64: {', '.join(given)}. " if given else ""
        several = len(self.outputs) > 1
        returned = f"a tuple of arrays {', '.join(self.outputs)}" if several else f"an array {self.outputs[0]}"
        return _wrapped(f"{gets}Return {returned}.")


def _static(name: str, values: Sequence[Any], speller: Speller) -> str:
    texts = [speller.spell(name, value) for value in values]
    plain = all(value is None or isinstance(value, (bool, int, float, str)) for value in values)
    if plain:
        return f"kt.static({', '.join(texts)})"
    named = [getattr(v, "__name__", f"option{i}" if i else "given") for i, v in enumerate(values)]
    return f"kt.static({', '.join(f'{key}={text}' for key, text in zip(named, texts, strict=True))})"


def _dim(dim: Dim) -> str:
    default = Dim()
    options = {name: getattr(dim, name) for name in ("block", "multiple_of", "minimum", "maximum", "values")}
    said = [f"{name}={value}" for name, value in options.items() if value != getattr(default, name)]
    return f"kt.dim({', '.join(said)})"


def _wrapped(text: str) -> list[str]:
    lines, line = [], "#"
    for word in text.split():
        if len(line) + len(word) > WIDTH - 8:
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]


def _broken(line: str) -> list[str]:
    """A line of the call, over several if it is too long."""
    if len(line) <= WIDTH - 4:
        return [line]
    start, _, rest = line.partition("(")
    return [f"{start}(", *(f"    {part}," for part in _parts(rest.removesuffix("),"))), "),"]


def _parts(text: str) -> list[str]:
    """Cut at the commas outside of brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def leaves_of(tree: Any) -> list[str]:
    """The paths in an argument of an example."""
    return list(jax.tree_util.tree_leaves(tree))
