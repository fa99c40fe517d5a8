"""Reads the modules that JAX lowers to, with jaxlib's MLIR bindings, into plain data."""

import contextlib
import functools
import json
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _mlir
from jaxlib.triton import dialect as triton_dialect


# Ends the search of MLIR's bindings for a Python module of Triton's dialect, which does not exist. They repeat it at
# each operation until they find one: that takes a tenth of a lowering and most of the time to read its result. They
# find an empty one here, remember that, and do not keep it.
def _settle_triton_module() -> None:
    name = "jaxlib.mlir.dialects.tt"
    if name in sys.modules:
        return
    sys.modules[name] = types.ModuleType(name)
    try:
        _mlir.globals._check_dialect_module_loaded("tt")
    finally:
        del sys.modules[name]


_settle_triton_module()


@functools.cache
def _context() -> Any:
    context = ir.Context()
    triton_dialect.register_dialect(context)
    context.load_all_available_dialects()
    context.allow_unregistered_dialects = True  # a barrier is an operation of the GPU dialect
    return context


_BYTECODE = b"ML\xefR"


def module_text(bytecode: bytes) -> str:
    """MLIR text of a module; of one that is text already, as it is."""
    if not bytecode.startswith(_BYTECODE):
        return bytecode.decode()
    return str(ir.Module.parse(bytecode, _context()))


# Hints of Triton's, and barriers within a program, of which jaxlib does not know the dialects. They change no value.
_HINTS = re.compile(rb"cachePolicy = #tt\.cache_policy<[^>]*>(?:, )?|^ *(?:llvm\.intr\.assume|ttg\.barrier) .*$", re.M)


class UnreadableError(Exception):
    """Triton IR that jaxlib's dialect does not know, in words."""


@contextlib.contextmanager
def triton_body(bytecode: bytes) -> Iterator[Any]:
    """Yields the region of the one Triton function in a module, valid only inside: the module owns its memory.

    Raises an UnreadableError: text with other operations than jaxlib's dialect has, or with several functions.
    """
    try:
        module = ir.Module.parse(_HINTS.sub(b"", bytecode), _context())
    except ir.MLIRError as error:
        if bytecode.startswith(_BYTECODE):
            raise
        said = str(error).splitlines()
        raise UnreadableError(f"this Triton IR ({next((s for s in said if 'error: ' in s), said[0])})") from error
    functions = [op for op in module.body.operations if op.operation.name == "tt.func"]
    if len(functions) != 1:
        raise UnreadableError("functions with noinline=True")
    yield functions[0].operation.regions[0]


@functools.cache
def _mosaic_context() -> Any:
    context = ir.Context()
    sys.modules["jax.experimental.mosaic.gpu"].dialect.register_dialect(context)  # lowering has loaded it
    context.load_all_available_dialects()
    context.allow_unregistered_dialects = True
    return context


# A constant, the launch, or an instruction that takes a part of a block's memory. Text is read several times as fast as
# operations, for each of whose dialects the bindings search a Python module.
_TAKES = re.compile(
    r'(%\w+) = "\S*\.constant"\(\) \{value = (\d+) : |gpu\.launch"\(([^)]*)\)|(mbarrier\.init)'
    r"|\(%\w+, (%\w+)\).*?tcgen05\.alloc"
)


def mosaic_gpu_facts(bytecode: bytes) -> tuple[str, dict[str, int]]:
    """Returns the name of the kernel in a lowered Mosaic GPU module, and what a block of it takes.

    That is bytes of `shared memory`, `TMEM columns`, `barriers`, and a cluster's blocks along x, y and z; none of these
    if it is 0, or if a cluster is one block. jaxlib before 0.12 cannot read the module, of which nothing is known.
    """
    try:
        module = ir.Module.parse(bytecode, _mosaic_context())
    except ir.MLIRError:
        return "", {}
    facts: Counter[str] = Counter()
    constants: dict[str, int] = {}
    for name, number, operands, barrier, columns in _TAKES.findall(str(module)):
        if name:
            constants[name] = int(number)
        elif operands:  # a token, the grid, the block, the cluster if there is one, and the shared memory
            _, *sizes, shared = operands.split(", ")
            facts["shared memory"] += constants[shared]
            facts |= {f"cluster {axis}": constants[size] for axis, size in zip("xyz", sizes[6:], strict=False)}
        elif barrier:
            facts["barriers"] += 1
        else:
            facts["TMEM columns"] += constants[columns]
    return ir.StringAttr(module.operation.attributes["sym_name"]).value, {fact: n for fact, n in facts.items() if n}


def attributes_of(operation: Any, unused: re.Pattern[str] | None = None) -> dict[str, Any]:
    """Returns an operation's attributes by name: numbers, strings, tuples, arrays, and MLIR text for any other.

    Those whose names match a pattern are left out.
    """
    names = (item if isinstance(item, str) else item.name for item in operation.attributes)
    return {name: _plain(operation.attributes[name]) for name in names if unused is None or not unused.search(name)}


def _plain(attribute: Any) -> Any:
    if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr, ir.StringAttr, ir.BoolAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI32ArrayAttr, ir.DenseI64ArrayAttr)):
        return tuple(attribute)
    if isinstance(attribute, ir.ArrayAttr) and all(isinstance(each, ir.IntegerAttr) for each in attribute):
        return tuple(map(_plain, attribute))
    if isinstance(attribute, ir.DenseElementsAttr):
        return _plain(attribute.get_splat_value()) if attribute.is_splat else np.array(attribute)
    return str(attribute)


@dataclass(frozen=True, eq=False, slots=True)
class CustomCall:
    """A call of code that XLA does not look into: the name of its target, and its configuration, with strings as bytes.

    `aliases` maps an output to the operand whose memory it shares, by index.
    """

    target: str
    config: Mapping[str, Any]
    aliases: Mapping[int, int]


_ALIAS = re.compile(r"output_tuple_indices = \[(\d*)\],\s*operand_index = (\d+)")


def custom_calls(lowered: Any, targets: frozenset[str]) -> Iterator[CustomCall]:
    """Yields the custom calls to some targets, in order, of what `jax.jit(...).trace(...).lower(...)` returned."""
    for operation in operations_in(lowered.compiler_ir("stablehlo").operation):
        if operation.name != "stablehlo.custom_call":
            continue
        attributes = operation.attributes
        target = ir.StringAttr(attributes["call_target_name"]).value
        if target in targets:
            text = str(attributes["output_operand_aliases"]) if "output_operand_aliases" in attributes else ""
            aliases = {int(output or 0): int(operand) for output, operand in _ALIAS.findall(text)}
            yield CustomCall(target, _config(attributes), aliases)


def _config(attributes_of_call: Any) -> dict[str, Any]:
    if "mhlo.backend_config" not in attributes_of_call:
        config: dict[str, Any] = json.loads(ir.StringAttr(attributes_of_call["backend_config"]).value)
        return config
    attributes = ir.DictAttr(attributes_of_call["mhlo.backend_config"])
    entries = (attributes[i] for i in range(len(attributes)))
    return {
        entry.name: entry.attr.value_bytes if isinstance(entry.attr, ir.StringAttr) else _plain(entry.attr)
        for entry in entries
    }


def operations_in(operation: Any) -> Iterator[Any]:
    """Yields the operations that are nested in an operation, in order."""
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from operations_in(inner.operation)
