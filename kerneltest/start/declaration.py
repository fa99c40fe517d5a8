"""The pairing that `kerneltest init` infers for a kernel, and the text of its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float
from kerneltest.declare.dims import Dim
from kerneltest.plan.boundaries import boundary_lengths
from kerneltest.start.example_calls import Example, KernelFunction, StartError
from kerneltest.start.integer_roles import may_point, role_source
from kerneltest.start.literals import SourceWriter
from kerneltest.start.trace_probe import LengthSlot

WIDTH = 120
_OF_PALLAS = ("interpret", "debug")  # options that kerneltest sets


@dataclass(frozen=True, slots=True)
class Declaration:
    """The content of a pairing's file.

    Attributes:
      kernel: the kernel.
      example: a call of it.
      options: the observed values of each static argument, the example's first.
      axes: the name of the dim of each slot; slots with a fixed length are absent.
      dims: the dims by name.
      dtypes: the dtypes that the float arrays were observed in; () if a call mixes several.
      excludes_extremes: whether float domains exclude the largest and smallest numbers, whose products overflow or
        vanish.
      outputs: the shapes of the outputs in terms of dims.
      backends: the backends that the kernel is for; () for all.
      notes: assumptions for the author to check, one line each.
    """

    kernel: KernelFunction
    example: Example
    options: Mapping[str, Sequence[Any]]
    axes: Mapping[LengthSlot, str]
    dims: Mapping[str, Dim]
    dtypes: tuple[str, ...]
    excludes_extremes: bool
    outputs: tuple[str, ...]
    backends: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def oracle(self) -> str:
        return f"{self.kernel.name}_oracle"

    def axis(self, path: str, axis: int) -> str:
        """Returns an axis of an array as its declaration writes it: a dim's name, or a length."""
        return self.axes.get(LengthSlot(path, axis), str(self.example.leaves[path].shape[axis]))

    def shape(self, path: str) -> list[str]:
        """Returns all axes of an array as its declaration writes them."""
        return [self.axis(path, axis) for axis in range(len(self.example.leaves[path].shape))]

    def source(self) -> str:
        """Returns the text of the file."""
        speller = SourceWriter()
        named = [*self.example.trees, *self.options]
        arguments = [f"{name}={self._argument(name, speller)}," for name in named]
        dims = {name: _dim_source(dim) for name, dim in self.dims.items() if dim != Dim()}
        if dims:
            arguments.append(f"dims=dict({', '.join(f'{name}={text}' for name, text in dims.items())}),")
        if self.backends:
            arguments.append(f"backends=({', '.join(map(_quoted, self.backends))}),")
        arguments += self._left_out(speller)
        outermost = self.kernel.path.partition(".")[0]
        speller.imports[self.kernel.module, outermost] = None
        by_module: dict[str, list[str]] = {}
        for module, name in sorted(speller.imports):
            by_module.setdefault(module, []).append(name)
        imports = [f"from {module} import {', '.join(names)}" for module, names in by_module.items()]
        notes = [line for note in self.notes for line in _wrap_comment(note)]
        return "\n".join(
            [
                f'"""The pairing of {self.kernel.name}."""',
                "",
                *(["import numpy as np", ""] if any("np." in line for line in arguments) else []),
                "import kerneltest as kt",
                *imports,
                "",
                "",
                *(["# Please check; tracing cannot determine this:", *notes] if notes else []),
                "@kt.oracle_for(",
                f"    {self.kernel.path},",
                *(f"    {line}" for each in arguments for line in _break_line(each)),
                ")",
                f"def {self.oracle}({', '.join(named)}):",
                *(f"    {line}" for line in self._oracle_comment()),
                f'    raise NotImplementedError("write {self.oracle}")',
                "",
            ]
        )

    def _left_out(self, speller: SourceWriter) -> list[str]:
        """Returns comments with the declarations of arguments that keep their defaults."""
        options = {n: each for n, each in self.example.left_out.items() if n not in _OF_PALLAS}
        lines = []
        for name, default in options.items():
            try:
                values = [default, not default] if isinstance(default, bool) else [default]
                lines.append(f"# {name}={_static_source(name, values, SourceWriter())},")
            except StartError:
                lines.append(f"# {name}=...,")
        return ["# Left out, with their defaults; declare those that callers give:", *lines] if lines else []

    def _argument(self, name: str, speller: SourceWriter) -> str:
        if name in self.options:
            dim = self.axes.get(LengthSlot(name, None))
            return f'kt.dim_size("{dim}")' if dim else _static_source(name, self.options[name], speller)
        return self._tree(name, self.example.trees[name], speller)

    def _tree(self, name: str, branch: Any, speller: SourceWriter) -> str:
        if isinstance(branch, str):
            return self._array(branch)

        def inside(each: Any) -> str:
            return self._array(each) if isinstance(each, str) else speller.container_source(name, each, inside)

        return f"kt.tree({speller.container_source(name, branch, inside)})"

    def _array(self, path: str) -> str:
        dtype, shape = self.example.leaves[path].dtype, " ".join(self.shape(path))
        if path in self.example.keys:
            return f"kt.key({'raw=True' if self.example.keys[path] else ''})"
        if may_point(self.example, path) and (role := self.role(path)):
            return role
        start = f'kt.array("{shape}"' if shape else "kt.scalar("
        comma = ", " if shape else ""
        if dtype == np.bool_:
            blocks = any(self.dims[dim].block for dim in self.shape(path) if dim in self.dims)
            return f'kt.mask("{shape}")' if blocks else f'{start}{comma}"bool")'
        words = []
        if is_float(dtype):
            dtypes = self.dtypes or (str(dtype),)
            words.append(repr(dtypes) if len(dtypes) > 1 else f'"{dtypes[0]}"')
            if self.excludes_extremes:
                words.append("domain=(-np.inf, np.inf)")
        else:
            words.append(f'"{dtype}"')
            if may_point(self.example, path):
                words.append(f"domain=(0, {self.shortest_length - 1})")
        return f"{start}{comma if words else ''}{', '.join(words)})".replace("'", '"')

    def role(self, path: str) -> str:
        """Returns the declaration that the name of an integer array suggests, or ""."""
        shapes = {each: self.shape(each) for each in self.example.leaves}
        lengths = {
            name: self.example.leaves[slot.path].shape[slot.axis]
            for slot, name in self.axes.items()
            if slot.axis is not None
        }
        return role_source(self.example, path, shapes, lengths)

    @property
    def shortest_length(self) -> int:
        """The shortest length in a plan of any dim."""
        return min((min(boundary_lengths(dim)) for dim in self.dims.values()), default=1)

    def _oracle_comment(self) -> list[str]:
        """Returns a comment on the oracle's arguments and result."""
        arrays = [f"{path} ({', '.join(self.shape(path))})" for path in self.example.leaves]
        arguments = f"Arguments are NumPy arrays, floats in float64: {', '.join(arrays)}. " if arrays else ""
        shapes = ", ".join(self.outputs)
        returned = f"a tuple of arrays of shapes {shapes}" if len(self.outputs) > 1 else f"an array of shape {shapes}"
        return _wrap_comment(f"{arguments}Return {returned}.")


def _static_source(name: str, values: Sequence[Any], speller: SourceWriter) -> str:
    texts = [speller.value_source(name, value) for value in values]
    plain = all(value is None or isinstance(value, (bool, int, float, str)) for value in values)
    if plain:
        return f"kt.static({', '.join(texts)})"
    named = [getattr(v, "__name__", f"option{i}" if i else "given") for i, v in enumerate(values)]
    return f"kt.static({', '.join(f'{key}={text}' for key, text in zip(named, texts, strict=True))})"


def _quoted(text: str) -> str:
    return f'"{text}"'


def _dim_source(dim: Dim) -> str:
    default = Dim()
    values = {name: getattr(dim, name) for name in ("block", "multiple_of", "minimum", "maximum", "values")}
    options = [f"{name}={value}" for name, value in values.items() if value != getattr(default, name)]
    return f"kt.dim({', '.join(options)})"


def _wrap_comment(text: str) -> list[str]:
    lines, line = [], "#"
    for word in text.split():
        if len(line) + len(word) > WIDTH - 8:
            lines.append(line)
            line = "#"
        line += f" {word}"
    return [*lines, line]


def _break_line(line: str) -> list[str]:
    """Returns a line of the call, broken into several if it is too long."""
    if len(line) <= WIDTH - 4 or line.startswith("#"):
        return [line]
    start, _, rest = line.partition("(")
    return [f"{start}(", *(f"    {part}," for part in _split_arguments(rest.removesuffix("),"))), "),"]


def _split_arguments(text: str) -> list[str]:
    """Splits text at the commas outside of brackets."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]
