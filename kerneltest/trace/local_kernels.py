"""Kernels under `jax.shard_map` without its mesh: every device's share of the work, one after another.

The local kernel is called once for each device of the mesh, on its part of the arrays. Collectives around the calls
exchange the devices' values. What remains is a kernel for one device, which any backend takes.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from kerneltest.trace.jax_compat.jaxprs import (
    Atom,
    ClosedJaxpr,
    Equation,
    JaxArray,
    Jaxpr,
    Var,
    communicates,
    consts_of,
    open_jaxpr,
    without_effects,
    without_mesh,
)
from kerneltest.trace.jax_compat.source_lines import line_of
from kerneltest.trace.primitives import CONTROL, Kind, called_jaxpr, kind_of
from kerneltest.trace.rewrite import inline_equations, rewrite_jaxpr
from kerneltest.trace.walk import iter_equations, primitive_name, scan_counts

_ROWS = "devices"

Values = list[list[JaxArray]]  # of each device


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
    """Puts a jaxpr with `jax.shard_map` on devices, unless its mesh consists of such devices already.

    Args:
      sharded: the jaxpr.
      devices: of one platform, as many as the mesh has or more.

    Returns:
      The jaxpr, and the sharding of an array that each device of its mesh holds whole.
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

    Raises:
      NotLocalError: devices communicate inside a Pallas call, or in a way that is not supported.
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
    """Runs a `jax.shard_map`: cuts its inputs, runs every device's part, and joins the outputs."""
    params = equation.params
    manual = params["newly_manual_axes"]
    mesh = {axis: size for axis, size in params["mesh"].shape.items() if axis in manual}
    devices = [dict(zip(mesh, at, strict=True)) for at in itertools.product(*map(range, mesh.values()))]
    cut = [
        [_part(array, spec, mesh, device) for array, spec in zip(arrays, params["in_specs"], strict=True)]
        for device in devices
    ]
    outputs = _Lockstep(mesh).run(params["jaxpr"], cut)
    return [
        _join([each[number] for each in outputs], spec, mesh, devices)
        for number, spec in enumerate(params["out_specs"])
    ]


def _axes(spec: Any, rank: int) -> list[tuple[str, ...]]:
    """The axes of the mesh along which each dimension of an array is cut."""
    entries = [() if each is None else each if isinstance(each, tuple) else (each,) for each in spec]
    return entries + [()] * (rank - len(entries))


def _position(axes: Sequence[str], mesh: Mapping[str, int], device: Mapping[str, int]) -> int:
    position = 0
    for axis in axes:
        position = position * mesh[axis] + device[axis]
    return position


def _part(array: JaxArray, spec: Any, mesh: Mapping[str, int], device: Mapping[str, int]) -> JaxArray:
    """Returns a device's part of an array."""
    starts, ends = [], []
    for axes, length in zip(_axes(spec, array.ndim), array.shape, strict=True):
        size = length // math.prod(mesh[axis] for axis in axes)
        starts.append(size * _position(axes, mesh, device))
        ends.append(starts[-1] + size)
    return jax.lax.slice(array, starts, ends) if any(_axes(spec, array.ndim)) else array


def _join(
    parts: Sequence[JaxArray], spec: Any, mesh: Mapping[str, int], devices: Sequence[Mapping[str, int]]
) -> JaxArray:
    """Joins the parts of the devices to the whole array."""
    cuts = _axes(spec, parts[0].ndim)
    by_place = {tuple(_position(axes, mesh, d) for axes in cuts): part for part, d in zip(parts, devices, strict=True)}
    for dimension, axes in reversed(list(enumerate(cuts))):
        if not axes:
            continue
        rows: dict[tuple[int, ...], list[JaxArray]] = {}
        for place in sorted(by_place):
            rows.setdefault((*place[:dimension], 0, *place[dimension + 1 :]), []).append(by_place[place])
        by_place = {place: jnp.concatenate(row, dimension) for place, row in rows.items()}
    (whole,) = by_place.values()
    return whole


class _Lockstep:
    """Runs the devices of a mesh together: each equation on all of them before the next one.

    Args:
      mesh: the length of each of its axes.
    """

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self._mesh = mesh

    def run(self, jaxpr: Jaxpr, arguments: Values) -> Values:
        """Runs an open jaxpr, which has no constants, and returns the outputs of each device."""
        known: list[dict[Var, JaxArray]] = [dict(zip(jaxpr.invars, each, strict=True)) for each in arguments]

        def read(atoms: Sequence[Atom]) -> Values:
            return [[atom.val if hasattr(atom, "val") else values[atom] for atom in atoms] for values in known]

        for exchanges, group in itertools.groupby(jaxpr.eqns, _exchanges):
            equations = list(group)
            steps = [[each] for each in equations] if exchanges else [equations]
            for step in steps:
                results, operands = _results(step, jaxpr), _operands(step)
                run = self._exchange(step[0]) if exchanges else self._alone(jaxpr, step, operands, results)
                for values, outputs in zip(known, run(read(step[0].invars if exchanges else operands)), strict=True):
                    values.update(zip(step[0].outvars if exchanges else results, outputs, strict=True))
        return read(jaxpr.outvars)

    def _alone(self, jaxpr: Jaxpr, equations: list[Equation], operands: list[Var], results: list[Var]) -> Any:
        """Equations that every device runs alone: one jaxpr, which all of them share."""
        part = jaxpr.replace(
            constvars=[], invars=operands, outvars=results, eqns=equations, effects=without_effects(equations),
            debug_info=jaxpr.debug_info.with_unknown_names(),
        )  # fmt: skip
        run = jax.jit(jaxpr_as_fun(ClosedJaxpr(part, [])))
        return lambda devices: [run(*values) for values in devices]

    def _exchange(self, equation: Equation) -> Any:
        """An equation by which devices exchange values."""
        kind, name = kind_of(equation), primitive_name(equation)
        if kind is Kind.MESH_CAST:
            return lambda devices: devices
        if kind is Kind.KERNEL:
            raise NotLocalError(exchange_in([equation]))
        if kind is Kind.CALL:
            inner = called_jaxpr(equation)
            return lambda devices: self._call(inner, devices)
        if name == "scan":
            return lambda devices: self._scan(equation.params, devices)
        if kind in CONTROL:
            raise NotLocalError(
                f"devices exchange values inside a {name} of the function around the kernel "
                f"({line_of(equation.source_info)}), which kerneltest cannot run for one device after another: use "
                "lax.scan or lax.fori_loop with constant bounds, or test it on a machine that has these devices"
            )
        return lambda devices: self._collect(equation, devices)

    def _call(self, inner: Jaxpr, devices: Values) -> Values:
        consts, body = consts_of(inner), open_jaxpr(inner)
        if consts:
            body = body.replace(constvars=[], invars=[*body.constvars, *body.invars])
        return self.run(body, [[*consts, *each] for each in devices])

    def _scan(self, params: Mapping[str, Any], devices: Values) -> Values:
        fixed, carried = scan_counts(params)
        consts = [each[:fixed] for each in devices]

        def step(carry: Values, xs: Values) -> tuple[Values, Values]:
            rows = [[*c, *state, *x] for c, state, x in zip(consts, carry, xs, strict=True)]
            outputs = self._call(params["jaxpr"], rows)
            return [each[:carried] for each in outputs], [each[carried:] for each in outputs]

        start = fixed + carried
        state, rows = jax.lax.scan(
            step, [each[fixed:start] for each in devices], [each[start:] for each in devices],
            length=params["length"], reverse=params["reverse"],
        )  # fmt: skip
        return [[*one, *other] for one, other in zip(state, rows, strict=True)]

    def _collect(self, equation: Equation, devices: Values) -> Values:
        """Runs a collective under `jax.vmap`: the devices that exchange values are the rows of an axis with a name."""
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
        order = np.arange(len(devices)).reshape(*self._mesh.values())
        order = order.transpose([list(self._mesh).index(axis) for axis in (*others, *along)]).reshape(-1)
        rows = math.prod(self._mesh[axis] for axis in along)
        every = jax.vmap(
            jax.vmap(run, axis_name=_ROWS, axis_size=rows), axis_size=len(devices) // rows
        )  # over the groups of devices, and the devices of a group
        ordered = zip(*(map(jnp.asarray, devices[number]) for number in order), strict=True)
        stacked = [jnp.stack(column).reshape(-1, rows, *column[0].shape) for column in ordered]
        results = [x.reshape(len(devices), *x.shape[2:]) for x in every(*stacked)]
        return [[x[row] for x in results] for row in np.argsort(order).tolist()]


def _exchanges(equation: Equation) -> bool:
    return communicates(equation) or kind_of(equation) is Kind.MESH_CAST


def _permute(x: JaxArray, permutation: Sequence[tuple[int, int]]) -> JaxArray:
    """Returns the value of the device that sends to this one; zeros if none does, which `jax.vmap` does not support."""
    every = jax.lax.all_gather(x, _ROWS)
    senders = {to: sender for sender, to in permutation}
    sender = jnp.array([senders.get(row, -1) for row in range(len(every))])[jax.lax.axis_index(_ROWS)]
    return jnp.where(sender < 0, jnp.zeros_like(x), every[sender])


def _operands(equations: Sequence[Equation]) -> list[Var]:
    """The variables that some equations read and do not define, in order."""
    defined = {v for equation in equations for v in equation.outvars}
    read = (v for equation in equations for v in equation.invars if not hasattr(v, "val"))
    return list(dict.fromkeys(v for v in read if v not in defined))


def _results(equations: Sequence[Equation], jaxpr: Jaxpr) -> list[Var]:
    """The variables that some equations of a jaxpr define."""
    inside = set(map(id, equations))
    read = {v for e in jaxpr.eqns if id(e) not in inside for v in e.invars if not hasattr(v, "val")}
    read |= {v for v in jaxpr.outvars if not hasattr(v, "val")}
    return [v for equation in equations for v in equation.outvars if v in read]
