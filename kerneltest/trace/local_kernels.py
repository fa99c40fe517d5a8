"""Kernels under `jax.shard_map` without its mesh: every device's share of the work, one after another.

The local kernel is called once for each device of the mesh, on its part of the arrays. Collectives around the calls
exchange the devices' values. What remains is a kernel for one device, which any backend takes.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kerneltest.trace.jax_compat.jaxprs import (
    ClosedJaxpr,
    Equation,
    JaxArray,
    Jaxpr,
    Var,
    communicates,
    without_effects,
    without_mesh,
)
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.machine import EquationFunction, Machine, RuleSet, Step, control_rule
from kerneltest.trace.primitives import CONTROL, Kind, kind_of
from kerneltest.trace.rewrite import inline_equations, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, primitive_name, scan_counts

_ROWS = "devices"
DeviceValues = list[JaxArray]  # one for each device


class NotLocalError(Exception):
    """A kernel that does not consist of kernels for one device each; its text says why."""


def shard_maps(jaxpr: Jaxpr) -> list[Equation]:
    """The `jax.shard_map` equations of a jaxpr, open or closed."""
    return [equation for equation, _ in iter_equations(jaxpr) if primitive_name(equation) == "shard_map"]


def exchange_in(calls: Iterable[Equation]) -> str:
    """Says which of some Pallas calls only all devices of a mesh together can run, as they communicate in it; or ""."""
    call = next(filter(communicates, calls), None)
    if call is None:
        return ""
    line = line_of(call.source_info)
    return (
        f"the kernel{f' called at {line}' if line else ''} sends to other devices of its mesh, or asks for its place "
        "there, so it runs only on all of them together: on a machine that has them (cuda, rocm, tpu)"
    )


def mesh_size(sharded: ClosedJaxpr) -> int:
    """The number of devices that a jaxpr with `jax.shard_map` needs."""
    return max(int(equation.params["mesh"].size) for equation in shard_maps(sharded))


def on_devices(sharded: ClosedJaxpr, devices: Sequence[Any]) -> tuple[ClosedJaxpr, Any]:
    """Puts a jaxpr with `jax.shard_map` on devices of one platform, unless its mesh consists of such devices already.

    The second result is the sharding of an array that each device of its mesh holds whole.
    """
    placed: list[Mesh] = []

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if primitive_name(equation) != "shard_map":
            return None
        mesh = equation.params["mesh"]
        if not isinstance(mesh, Mesh) or not set(mesh.devices.flat) <= set(devices):
            shape = tuple(mesh.shape.values())
            chosen = np.array(devices[: math.prod(shape)], object).reshape(shape)
            mesh = Mesh(chosen, mesh.axis_names, axis_types=mesh.axis_types)
        placed.append(mesh)
        return [equation.replace(params={**equation.params, "mesh": mesh})]

    jaxpr = rewrite_jaxpr(sharded, rule)
    return jaxpr, NamedSharding(placed[0], PartitionSpec())


def localize(closed: ClosedJaxpr) -> ClosedJaxpr:
    """Replaces every `jax.shard_map` of a jaxpr by what each device of its mesh does.

    NotLocalError if devices communicate inside a Pallas call, or in a way that is not supported.
    """

    def rule(equation: Equation) -> Sequence[Equation] | None:
        if kind_of(equation) is Kind.PLACEMENT:
            return inline_equations(jnp.copy, equation.invars, equation.outvars)
        if primitive_name(equation) != "shard_map":
            return None
        local = jax.jit(lambda *arrays: _run_on_mesh(equation, arrays))  # one equation, which may have constants
        return inline_equations(local, equation.invars, equation.outvars)

    try:
        local: ClosedJaxpr = rewrite_jaxpr(without_mesh(closed), rule)
        return local
    except NotLocalError:
        raise
    except Exception as error:
        raise NotLocalError(
            "kerneltest cannot run this jax.shard_map for one device after another, which is not the kernel's fault: "
            f"{type(error).__name__}: {error}"
        ) from error


def _run_on_mesh(equation: Equation, arrays: Sequence[JaxArray]) -> list[JaxArray]:
    params = equation.params
    manual = params["newly_manual_axes"]
    mesh = {axis: size for axis, size in params["mesh"].shape.items() if axis in manual}
    devices = [dict(zip(mesh, at, strict=True)) for at in itertools.product(*map(range, mesh.values()))]
    given = zip(arrays, params["in_specs"], strict=True)
    cut = [[_part(array, spec, mesh, device) for device in devices] for array, spec in given]
    outputs = Machine(_DeviceRules(mesh)).compile(params["jaxpr"])(cut)
    return [_join(parts, spec, mesh, devices) for parts, spec in zip(outputs, params["out_specs"], strict=True)]


def _axes(spec: Any, rank: int) -> list[tuple[str, ...]]:
    entries = [() if each is None else each if isinstance(each, tuple) else (each,) for each in spec]
    return entries + [()] * (rank - len(entries))


def _position(axes: Sequence[str], mesh: Mapping[str, int], device: Mapping[str, int]) -> int:
    position = 0
    for axis in axes:
        position = position * mesh[axis] + device[axis]
    return position


def _part(array: JaxArray, spec: Any, mesh: Mapping[str, int], device: Mapping[str, int]) -> JaxArray:
    starts, ends = [], []
    for axes, length in zip(_axes(spec, array.ndim), array.shape, strict=True):
        size = length // math.prod(mesh[axis] for axis in axes)
        starts.append(size * _position(axes, mesh, device))
        ends.append(starts[-1] + size)
    return jax.lax.slice(array, starts, ends) if any(_axes(spec, array.ndim)) else array


def _join(
    parts: Sequence[JaxArray], spec: Any, mesh: Mapping[str, int], devices: Sequence[Mapping[str, int]]
) -> JaxArray:
    cuts = _axes(spec, parts[0].ndim)
    by_place = {tuple(_position(axes, mesh, d) for axes in cuts): part for part, d in zip(parts, devices, strict=True)}

    def join(place: tuple[int, ...]) -> JaxArray:
        axis = len(place)
        if axis == len(cuts):
            return by_place[place]
        rows = [join((*place, number)) for number in range(math.prod(mesh[name] for name in cuts[axis]))]
        return jnp.concatenate(rows, axis) if cuts[axis] else rows[0]

    return join(())


class _DeviceRules(RuleSet):
    """The values of all devices of a mesh, in a list: each equation runs on all of them before the next one."""

    def __init__(self, mesh: Mapping[str, int]) -> None:
        super().__init__()
        self._mesh, self._count = mesh, math.prod(mesh.values())

    def steps(self, machine: Machine, jaxpr: Jaxpr) -> Iterator[Step]:
        exchanges = itertools.groupby(jaxpr.eqns, lambda e: communicates(e) or kind_of(e) is Kind.MESH_CAST)
        for is_exchange, equations in exchanges:
            if is_exchange:
                yield from ((self.rule(machine, equation), equation.invars, equation.outvars) for equation in equations)
            else:
                yield self._alone(jaxpr, list(equations))

    def constant(self, value: Any, dtype: Any = None) -> DeviceValues:
        return [value] * self._count

    def _alone(self, jaxpr: Jaxpr, equations: list[Equation]) -> Step:
        own = {v: None for equation in equations for v in equation.outvars}
        operands = [v for v in _read(equations) if v not in own]
        inside = set(map(id, equations))
        later = {
            *_read(e for e in jaxpr.eqns if id(e) not in inside),
            *(v for v in jaxpr.outvars if not hasattr(v, "val")),
        }
        results = [v for v in own if v in later]
        part = jaxpr.replace(
            constvars=[], invars=operands, outvars=results, eqns=equations, effects=without_effects(equations),
            debug_info=jaxpr.debug_info.with_unknown_names(),
        )  # fmt: skip
        run = jax.jit(jaxpr_as_fun(ClosedJaxpr(part, [])))

        def evaluate(values: Sequence[DeviceValues]) -> list[DeviceValues]:
            outputs = [run(*(devices[number] for devices in values)) for number in range(self._count)]
            return list(map(list, zip(*outputs, strict=True)))

        return evaluate, operands, results

    def rule(self, machine: Machine, equation: Equation) -> EquationFunction:
        """An equation by which devices exchange values."""
        kind, name = kind_of(equation), primitive_name(equation)
        if kind is Kind.MESH_CAST:
            return lambda values: values
        if kind in (Kind.KERNEL, Kind.REGION):
            raise NotLocalError(exchange_in([equation]))
        if kind is Kind.CALL:
            return control_rule(machine, equation)
        if name == "scan":
            return self._scan(machine, equation.params)
        if kind in CONTROL:
            raise NotLocalError(
                f"devices exchange values inside a {name} of the function around the kernel "
                f"({line_of(equation.source_info)}), which kerneltest cannot run for one device after another: use "
                "lax.scan or lax.fori_loop with constant bounds, or test it on a machine that has these devices"
            )
        return lambda values: self._collect(equation, values)

    def _scan(self, machine: Machine, params: Mapping[str, Any]) -> EquationFunction:
        body, (fixed, carried) = machine.compile(params["jaxpr"]), scan_counts(params)

        def step(consts: Sequence[DeviceValues], carry: list[DeviceValues], xs: list[DeviceValues]) -> Any:
            results = body([*consts, *carry, *xs])
            return results[:carried], results[carried:]

        def evaluate(values: Sequence[DeviceValues]) -> Sequence[DeviceValues]:
            start = fixed + carried
            state, rows = jax.lax.scan(
                functools.partial(step, values[:fixed]), list(values[fixed:start]), list(values[start:]),
                length=params["length"], reverse=params["reverse"],
            )  # fmt: skip
            return [*state, *rows]

        return evaluate

    def _collect(self, equation: Equation, values: Sequence[DeviceValues]) -> list[DeviceValues]:
        # Runs a collective under `jax.vmap`: the devices that exchange values are the rows of an axis with a name.
        name, params = primitive_name(equation), dict(equation.params)
        key = "axes" if "axes" in params else "axis_name"
        along = params[key] if isinstance(params[key], tuple) else (params[key],)
        params[key] = (_ROWS,) if isinstance(params[key], tuple) else _ROWS

        def run(*operands: JaxArray) -> list[JaxArray]:
            if name == "psum_invariant":
                return list(jax.lax.psum(operands, _ROWS))
            if name == "all_gather_invariant":
                axis, tiled = params["all_gather_dimension"], params["tiled"]
                return [jax.lax.all_gather(x, _ROWS, axis=axis, tiled=tiled) for x in operands]
            if name == "ppermute":
                return [_permute(operands[0], params["perm"])]
            outputs = equation.primitive.bind(*operands, **params)
            return list(outputs) if equation.primitive.multiple_results else [outputs]

        others = [axis for axis in self._mesh if axis not in along]
        order = np.arange(self._count).reshape(*self._mesh.values())
        order = order.transpose([list(self._mesh).index(axis) for axis in (*others, *along)]).reshape(-1)
        rows = math.prod(self._mesh[axis] for axis in along)
        in_group = jax.vmap(run, axis_name=_ROWS, axis_size=rows)
        every = jax.vmap(in_group, axis_size=self._count // rows)  # over the groups of devices
        ordered = [[jnp.asarray(devices[number]) for number in order] for devices in values]
        stacked = [jnp.stack(column).reshape(-1, rows, *column[0].shape) for column in ordered]
        results = [x.reshape(self._count, *x.shape[2:]) for x in every(*stacked)]
        return [[x[row] for row in np.argsort(order).tolist()] for x in results]


def _permute(x: JaxArray, permutation: Sequence[tuple[int, int]]) -> JaxArray:
    # Returns the value of the device that sends to this one; zeros if none does, which `jax.vmap` does not support.
    every = jax.lax.all_gather(x, _ROWS)
    senders = {to: sender for sender, to in permutation}
    sender = jnp.array([senders.get(row, -1) for row in range(len(every))])[jax.lax.axis_index(_ROWS)]
    return jnp.where(sender < 0, jnp.zeros_like(x), every[sender])


def _read(equations: Iterable[Equation]) -> list[Var]:
    return list(dict.fromkeys(v for equation in equations for v in equation.invars if not hasattr(v, "val")))
