"""The pairing that `kerneltest init` infers for a kernel, and the text of its file."""

import ast
import contextlib
import dataclasses
import enum
import inspect
import keyword
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from kerneltest.core.dtypes import is_float, parse_dtype
from kerneltest.core.failures import Failure, exception_text
from kerneltest.core.fingerprint import find_object
from kerneltest.core.grouping import group_pairs
from kerneltest.core.processes import show_warnings_once
from kerneltest.core.source_location import parse_source
from kerneltest.declare.dims import Dim
from kerneltest.declare.kinds.base import DEFAULT_FLOATS
from kerneltest.declare.pairing import ALL_PAIRINGS, Pairing
from kerneltest.plan.signatures import boundary_lengths, signatures
from kerneltest.records.run_plan import innermost_function
from kerneltest.start.command_progress import CommandProgress, TimeLimitError
from kerneltest.start.example_calls import ArrayPath, Example, KernelFunction, StartError
from kerneltest.start.inference import (
    BACKENDS,
    InferredLengths,
    dims_to_pin,
    infer_dims,
    infer_lengths,
    infer_target,
    may_point,
    role_source,
)
from kerneltest.start.trace_probe import LengthSlot, Probe, output_shapes
from kerneltest.trace.jaxpr_source import literal
from kerneltest.trace.tracing import trace, without_debugging

# Python source of values, for the static arguments and pytrees in the file of a pairing.


@dataclass
class SourceWriter:
    """Writes values as source, and collects the imports (module and name) that the source needs."""

    imports: dict[tuple[str, str], None] = field(default_factory=dict)

    def value_source(self, name: str, value: object, array: Callable[[ArrayPath], str] = repr) -> str:
        """Returns the source of the value of an argument; raises a StartError if it has none."""
        return literal(value, lambda each: self._object_source(name, each, array))

    def _object_source(self, name: str, value: Any, array: Callable[[ArrayPath], str]) -> str:
        if isinstance(value, ArrayPath):
            return array(value)
        if isinstance(value, enum.Enum):
            return f"{self._import(name, type(value))}.{value.name}"
        if isinstance(value, (int, float, str)):
            return literal(float(value)) if isinstance(value, float) else repr(value)
        if isinstance(value, np.dtype):
            return f'np.dtype("{value.name}")'
        if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            return self._import(name, value)
        fields: list[tuple[str, Any]] | None = None
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if f.init]
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            fields = list(zip(value._fields, value, strict=True))
        if fields is not None:
            given = [f"{key}={self.value_source(name, each, array)}" for key, each in fields]
            return f"{self._import(name, type(value))}({', '.join(given)})"
        raise StartError(
            f"argument {name!r} is a {type(value).__name__}, which has no source; pair a function that creates it and "
            "calls the kernel instead"
        )

    def _import(self, name: str, value: object) -> str:
        module, path = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        if find_object(module, path) is not value:
            raise StartError(
                f"argument {name!r} is {value!r}, which cannot be imported by its name; define it at the top level of "
                "a module"
            )
        if module != "builtins":
            self.imports[module, path.partition(".")[0]] = None
        return path


WIDTH = 120
_OF_PALLAS = ("interpret", "debug")  # options that kerneltest sets


@dataclass(frozen=True, slots=True)
class Declaration:
    """The content of a pairing's file."""

    kernel: KernelFunction  # the kernel
    example: Example  # a call of it
    options: Mapping[str, Sequence[Any]]  # the observed values of each static argument, the example's first
    axes: Mapping[LengthSlot, str]  # the name of the dim of each slot; slots with a fixed length are absent
    dims: Mapping[str, Dim]  # the dims by name
    dtypes: tuple[str, ...]  # the dtypes that the float arrays were observed in; () if a call mixes several
    # whether float domains exclude the largest and smallest numbers, whose products overflow or vanish
    excludes_extremes: bool
    outputs: tuple[str, ...]  # the shapes of the outputs in terms of dims
    backends: tuple[str, ...]  # the backends that the kernel is for; () for all
    notes: tuple[str, ...]  # assumptions for the author to check, one line each

    @property
    def oracle(self) -> str:
        return f"{self.kernel.name}_oracle"

    def shape(self, path: str) -> list[str]:
        """Returns the axes of an array as its declaration writes them: names of dims, or lengths."""
        lengths = self.example.leaves[path].shape
        return [self.axes.get(LengthSlot(path, axis), str(length)) for axis, length in enumerate(lengths)]

    def source(self) -> str:
        speller = SourceWriter()
        named = [*self.example.trees, *self.options]
        arguments = [f"{name}={self._argument(name, speller)}," for name in named]
        dims = {name: _dim_source(dim) for name, dim in self.dims.items() if dim != Dim()}
        if dims:
            arguments.append(f"dims=dict({', '.join(f'{name}={text}' for name, text in dims.items())}),")
        if self.backends:
            quoted = ", ".join(f'"{name}"' for name in self.backends)
            arguments.append(f"backends=({quoted}),")
        arguments += self._left_out(speller)
        outermost = self.kernel.path.partition(".")[0]
        speller.imports[self.kernel.module, outermost] = None
        by_module = group_pairs(sorted(speller.imports))
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
                *(f"    {line}" for argument in arguments for line in _break_line(argument)),
                ")",
                f"def {self.oracle}({', '.join(named)}):",
                *(f"    {line}" for line in self._oracle_comment()),
                f'    raise NotImplementedError("write {self.oracle}")',
                "",
            ]
        )

    def _left_out(self, speller: SourceWriter) -> list[str]:
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

        tree = self.example.trees[name]
        source = speller.value_source(name, tree, self._array)
        return source if isinstance(tree, ArrayPath) else f"kt.tree({source})"

    def _array(self, path: str) -> str:
        dtype, shape = self.example.leaves[path].dtype, " ".join(self.shape(path))
        if path in self.example.keys:
            return f"kt.key({'raw=True' if self.example.keys[path] else ''})"
        if may_point(self.example, path) and (role := self.role(path)):
            return role
        words = [f'"{shape}"'] if shape else []
        if dtype == np.bool_:
            if any(self.dims[dim].block for dim in self.shape(path) if dim in self.dims):
                return f'kt.mask("{shape}")'
            words.append('"bool"')
        elif is_float(dtype):
            dtypes = self.dtypes or (str(dtype),)
            words.append(repr(dtypes) if len(dtypes) > 1 else f'"{dtypes[0]}"')
            if self.excludes_extremes:
                words.append("domain=(-np.inf, np.inf)")
        else:
            words.append(f'"{dtype}"')
            if may_point(self.example, path):
                shortest = min((min(boundary_lengths(dim)) for dim in self.dims.values()), default=1)
                words.append(f"domain=(0, {shortest - 1})")
        return f"kt.{'array' if shape else 'scalar'}({', '.join(words)})".replace("'", '"')

    def role(self, path: str) -> str:
        """Returns the declaration that the name of an integer array suggests, or ""."""
        shapes = {leaf: self.shape(leaf) for leaf in self.example.leaves}
        lengths = {name: slot.length_in(self.example) for slot, name in self.axes.items() if slot.axis is not None}
        return role_source(self.example, path, shapes, lengths)

    def _oracle_comment(self) -> list[str]:
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


def _dim_source(dim: Dim) -> str:
    names = ("block", "multiple_of", "minimum", "maximum", "values")
    changed = [name for name in names if getattr(dim, name) != getattr(Dim(), name)]
    return f"kt.dim({', '.join(f'{name}={getattr(dim, name)}' for name in changed)})"


def _wrap_comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH - 7, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )


def _break_line(line: str) -> list[str]:
    if len(line) <= WIDTH - 4 or line.startswith("#"):
        return [line]
    start, _, rest = line.partition("(")
    return [f"{start}(", *(f"    {part}," for part in _split_arguments(rest.removesuffix("),"))), "),"]


def _split_arguments(text: str) -> list[str]:
    # At the commas outside of brackets.
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


# Notes for the author, in the file of a pairing, on what tracing cannot determine.


def length_notes(inferred: Mapping[str, InferredLengths]) -> list[str]:
    """Returns notes on the lengths of dims."""
    notes = []
    for name, each in inferred.items():
        if not each.is_complete:
            notes.append(f"{name}: these lengths were tried before the time was over; give a larger --limit")
            continue
        if each.whole_block and each.dim.multiple_of % each.whole_block:
            who = (
                f"the grid has {name} // {each.whole_block} programs"
                if each.counted_by_grid
                else f"a length in the kernel is {name} // {each.whole_block}"
            )
            notes.append(
                f"{name}: {who}, so a tail may be skipped; if only multiples of {each.whole_block} are valid, declare "
                f"kt.dim(multiple_of={each.whole_block})"
            )
        for lengths, does in ((each.rejected, "raises"), (each.unlowered, "does not lower")):
            if lengths:
                shown = ", ".join(map(str, lengths[:6])) + (", ..." if len(lengths) > 6 else "")
                notes.append(f"{name}: the kernel {does} at lengths such as {shown}, so they are excluded")
    return notes


_OTHERS = {"gpu": "TPUs", "tpu": "GPUs"}
_BACKENDS_NOTE = "the kernel names no language, and does not lower for {} here; remove backends= if it should"


def integer_notes(declaration: Declaration) -> list[str]:
    """Returns notes on integer arrays that may hold positions or counts, with the declarations for these."""
    notes = []
    for path in declaration.example.leaves:
        if not may_point(declaration.example, path):
            continue
        if declaration.role(path):
            notes.append(f"{path}: the role of its integers is inferred only from its name")
            continue
        shape = " ".join(declaration.shape(path))
        dim = next(iter(reversed(list(declaration.dims))), "n")
        known = declaration.example.ranges.get(path)
        seen = f" (in the example, from {known[0]} to {known[1]})" if known else ""
        notes.append(
            f'{path} holds integers{seen}: declare positions as kt.indices("{shape}", into="{dim}"), counts of '
            f'elements as kt.lengths("{shape}", up_to="{dim}"), and the range of other values by domain='
        )
    return notes


def dtype_notes(probe: Probe, seen: tuple[str, ...]) -> list[str]:
    """Returns a note on dtypes that the kernel accepts but no call has."""
    floats = {path: leaf.dtype for path, leaf in probe.example.leaves.items() if is_float(leaf.dtype)}
    others = []
    for name in DEFAULT_FLOATS:
        with contextlib.suppress(Failure, TimeLimitError):
            if name not in seen:
                probe.trace({}, dict.fromkeys(floats, parse_dtype(name)))
                others.append(name)
    if not (others and seen):
        return []
    return [
        f"the example is in {' and '.join(seen)}, and the kernel can also be traced in {' and '.join(others)}: "
        "add the dtypes that it supports"
    ]


# Names for dims: those that the kernel's source gives to lengths, or else conventional ones.

_BY_RANK = {1: "n", 2: "mn", 3: "bmn", 4: "bhmn"}
_MORE = "nmkpqrstuvw"


def name_dims(function: Callable[..., Any], dims: Sequence[Sequence[LengthSlot]], ranks: dict[str, int]) -> list[str]:
    """Returns distinct names for dims, from the source of the kernel (`m, n = x.shape`), or else by axis."""
    in_source = dict(_names_in_source(function))
    names: list[str] = []
    for slots in dims:
        own = [in_source[slot] for slot in slots if slot in in_source]
        numbers = [slot.path for slot in slots if slot.axis is None]
        usual = [_BY_RANK[rank][s.axis] for s in slots if s.axis is not None and (rank := ranks[s.path]) in _BY_RANK]
        candidates = [*own, *numbers, *usual, *_MORE, *(f"n{i}" for i in range(len(dims)))]
        names.append(next(name for name in candidates if name not in names))
    return names


def _names_in_source(function: Callable[..., Any]) -> Iterator[tuple[LengthSlot, str]]:
    # From `m, n = x.shape` and `n = x.shape[1]`.
    function = innermost_function(function)
    try:
        tree = parse_source(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        tree = None
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            for slot, name in _assigned_names(node.targets[0], node.value):
                if name.isidentifier() and not keyword.iskeyword(name) and name[0] != "_":
                    yield slot, name


def _assigned_names(target: ast.expr, value: ast.expr) -> Iterator[tuple[LengthSlot, str]]:
    match target, value:
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for each, its in zip(targets, values, strict=True):
                yield from _assigned_names(each, its)
        case ast.Tuple(elts=targets), ast.Attribute(value=ast.Name(id=array), attr="shape"):
            for axis, each in enumerate(targets):
                if isinstance(each, ast.Name):
                    yield LengthSlot(array, axis), each.id
                else:
                    return  # a starred name matches any number of axes
        case ast.Name(id=name), ast.Subscript(
            value=ast.Attribute(value=ast.Name(id=array), attr="shape"), slice=ast.Constant(value=int(axis))
        ):
            yield LengthSlot(array, axis), name


# `kerneltest init`: infers the declaration from calls of the kernel, and writes its file.


def write_pairing(
    kernel: KernelFunction, examples: Sequence[Example], folder: Path, progress: CommandProgress
) -> tuple[Path, Declaration]:
    """Writes `test_NAME.py` for a kernel from calls of it, the first of which is traced; returns path and content."""
    path = folder / f"test_{kernel.name}.py"
    if path.exists():
        raise StartError(f"{path} already exists; move it, or choose another folder with --output")
    declaration = infer_declaration(kernel, examples, progress)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(declaration.source(), encoding="utf-8")
    return path, declaration


def infer_declaration(
    kernel: KernelFunction, examples: Sequence[Example], progress: CommandProgress | None = None
) -> Declaration:
    """Infers the declaration of a kernel from calls of it and from traces at other lengths, until the time is over."""
    first, compatible = examples[0], [example for example in examples if _are_compatible(example, examples[0])]
    probe = Probe(kernel, first, progress or CommandProgress())
    others = [{slot: slot.length_in(example) for slot in probe.lengths} for example in compatible[1:]]
    slots_of_dims, assumptions = infer_dims(probe, others)
    ranks = {path: len(leaf.shape) for path, leaf in first.leaves.items()}
    names = name_dims(kernel.function, slots_of_dims, ranks)
    dims = dict(zip(names, slots_of_dims, strict=True))
    target = infer_target(probe, dims)
    inferred = {name: infer_lengths(probe, slots, BACKENDS.get(target, "")) for name, slots in dims.items()}
    declaration = Declaration(
        kernel=kernel,
        example=first,
        options={name: _values_of(name, compatible) for name in first.statics},
        axes={slot: name for name, slots in dims.items() for slot in slots},
        dims=_dims(inferred),
        dtypes=_dtypes(compatible),
        excludes_extremes=any(is_float(leaf.dtype) for leaf in first.leaves.values()) and not probe.traced.exact,
        outputs=output_shapes(probe, dims),
        backends=("interpret", target) if target else (),
        notes=(*assumptions, *length_notes(inferred), *([_BACKENDS_NOTE.format(_OTHERS[target])] if target else [])),
    )
    more = (*integer_notes(declaration), *dtype_notes(probe, declaration.dtypes))
    declaration = replace(declaration, notes=(*declaration.notes, *more))
    try:
        return _exclude_rejected(declaration, probe, dims)
    except TimeLimitError:
        note = "not all lengths were tried together before the time was over; give a larger --limit"
        return replace(declaration, notes=(*declaration.notes, note))


def _are_compatible(one: Example, other: Example) -> bool:
    kinds = [
        {path: ("float" if is_float(leaf.dtype) else leaf.dtype, len(leaf.shape)) for path, leaf in each.leaves.items()}
        for each in (one, other)
    ]
    return kinds[0] == kinds[1] and one.statics.keys() == other.statics.keys()


def _dims(inferred: dict[str, InferredLengths]) -> dict[str, Dim]:
    # Dims with a program for each index get few lengths, so that arrays stay small.
    rows = {name for name, each in inferred.items() if each.program_per_index and each.dim == Dim()}
    few = rows if len(rows) < len(inferred) else set()
    return {name: Dim(values=_FEW) if name in few else each.dim for name, each in inferred.items()}


_FEW = (1, 2, 5)


def _values_of(name: str, examples: Sequence[Example]) -> list[Any]:
    values = [example.statics[name] for example in examples]
    return [value for number, value in enumerate(values) if value not in values[:number]]  # they may not be hashable


def _dtypes(examples: Sequence[Example]) -> tuple[str, ...]:
    seen = [{str(leaf.dtype) for leaf in example.leaves.values() if is_float(leaf.dtype)} for example in examples]
    return () if any(len(each) != 1 for each in seen) else tuple(dict.fromkeys(name for each in seen for name in each))


def _exclude_rejected(declaration: Declaration, probe: Probe, dims: dict[str, tuple[LengthSlot, ...]]) -> Declaration:
    for _ in dims:
        rejected = _rejected_lengths(declaration, probe.progress)
        if not rejected:
            break
        pinned = {name: Dim(values=(probe.lengths[dims[name][0]],)) for name in dims_to_pin(probe, dims, rejected)}
        at = ", ".join(f"{name}={length}" for name, length in rejected[0].items())
        names = " and ".join(pinned)
        note = f"{names}: fixed to the example's length, since the kernel raises at {at}; declare valid combinations"
        declaration = replace(declaration, dims={**declaration.dims, **pinned}, notes=(*declaration.notes, note))
    return declaration


def _rejected_lengths(declaration: Declaration, progress: CommandProgress) -> list[dict[str, int]]:
    pairing = execute_declaration(declaration)
    rejected = []
    for signature in signatures(pairing, "standard"):
        progress.show(f"tracing the kernel at {signature}")
        try:
            with progress.interrupt(), without_debugging(), show_warnings_once():
                trace(pairing, signature)
        except Failure:
            rejected.append(dict(signature.dims))
    return rejected


def execute_declaration(declaration: Declaration) -> Pairing:
    """Executes the file of a declaration, and returns its pairing."""
    module = types.ModuleType(f"test_{declaration.kernel.name}")
    known = len(ALL_PAIRINGS)
    source = declaration.source()
    try:
        sys.modules[module.__name__] = module
        exec(compile(source, f"{module.__name__}.py", "exec"), module.__dict__)
    except Exception as error:
        raise StartError(
            f"{declaration.kernel.name}: the call cannot be declared: {exception_text(error)}\n{source}"
        ) from error
    finally:
        sys.modules.pop(module.__name__, None)
        del ALL_PAIRINGS[known:]
    pairing: Pairing = getattr(module, declaration.oracle)
    return pairing
