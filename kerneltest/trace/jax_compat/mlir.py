"""Modules that JAX lowers to, read with jaxlib's MLIR bindings and given as plain data."""

import contextlib
import functools
import json
import re
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxlib.mlir import ir
from jaxlib.triton import dialect as triton_dialect

# MLIR's bindings look for a Python module of the dialect whenever they touch an operation, until they find one: a tenth
# of a lowering and most of reading its result.
sys.modules.setdefault("jaxlib.mlir.dialects.tt", types.ModuleType("jaxlib.mlir.dialects.tt"))


@functools.cache
def _context() -> Any:
    """A context that knows the Triton dialect."""
    context = ir.Context()
    triton_dialect.register_dialect(context)
    context.load_all_available_dialects()
    return context


def module_text(bytecode: bytes) -> str:
    """A module as MLIR text."""
    return str(ir.Module.parse(bytecode, _context()))


@contextlib.contextmanager
def triton_body(bytecode: bytes) -> Iterator[Any]:
    """The region of the one Triton function in a module; inside the context alone, since the module owns its memory."""
    module = ir.Module.parse(bytecode, _context())
    (function,) = (op for op in module.body.operations if op.operation.name == "tt.func")
    yield function.operation.regions[0]


def attributes_of(operation: Any) -> dict[str, Any]:
    """An operation's attributes by name: numbers, strings, tuples and arrays as such, others as MLIR text."""
    names = (item if isinstance(item, str) else item.name for item in operation.attributes)
    return {name: _plain(operation.attributes[name]) for name in names}


def _plain(attribute: Any) -> Any:
    if isinstance(attribute, (ir.IntegerAttr, ir.FloatAttr, ir.StringAttr, ir.BoolAttr)):
        return attribute.value
    if isinstance(attribute, ir.DenseI32ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.DenseElementsAttr):
        return _plain(attribute.get_splat_value()) if attribute.is_splat else np.array(attribute)
    return str(attribute)


@dataclass(frozen=True, eq=False, slots=True)
class CustomCall:
    """A call of code that XLA is handed as it is.

    Attributes:
      target: the name under which XLA knows what runs it.
      config: what it is told, by name; strings of an attribute as bytes.
      aliases: output to the operand whose memory it shares.
    """

    target: str
    config: Mapping[str, Any]
    aliases: Mapping[int, int]


def custom_calls(lowered: Any, targets: frozenset[str]) -> Iterator[CustomCall]:
    """The custom calls of some targets, in order, in what `jax.jit(...).trace(...).lower(...)` returned."""
    for operation in _operations(lowered.compiler_ir("stablehlo").operation):
        if operation.name != "stablehlo.custom_call":
            continue
        attributes = operation.attributes
        target = ir.StringAttr(attributes["call_target_name"]).value
        if target in targets:
            yield CustomCall(target, _config(attributes), _aliases(attributes))


def _config(of_call: Any) -> dict[str, Any]:
    if "mhlo.backend_config" not in of_call:
        told: dict[str, Any] = json.loads(ir.StringAttr(of_call["backend_config"]).value)
        return told
    attributes = ir.DictAttr(of_call["mhlo.backend_config"])
    entries = (attributes[i] for i in range(len(attributes)))
    return {
        entry.name: entry.attr.value_bytes if isinstance(entry.attr, ir.StringAttr) else _plain(entry.attr)
        for entry in entries
    }


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield inner.operation
                yield from _operations(inner.operation)


_ALIAS = re.compile(r"output_tuple_indices = \[(\d*)\],\s*operand_index = (\d+)")


def _aliases(attributes: Any) -> dict[int, int]:
    text = str(attributes["output_operand_aliases"]) if "output_operand_aliases" in attributes else ""
    return {int(output or 0): int(operand) for output, operand in _ALIAS.findall(text)}
