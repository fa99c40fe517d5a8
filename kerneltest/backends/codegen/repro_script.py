"""Operations of a kernel as a script of plain Pallas that lowers them for a GPU, without needing one."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from kerneltest.backends.codegen.repro_source import NotPlainError, OperationWriter, constant, literal
from kerneltest.core.targets import Target
from kerneltest.trace.equation_steps import JaxprBody, JaxprStep, is_literal, iter_steps
from kerneltest.trace.walk import scan_counts

Variable = Any  # a variable or a literal of a jaxpr, whose classes JAX keeps private

_WRITES = frozenset({"swap", "masked_swap", "addupdate", "atomic_rmw", "atomic_cas"})
_PROGRAMS = frozenset({"program_id", "num_programs"})

_IMPORTS = {
    "jax": "import jax",
    "jnp": "import jax.numpy as jnp",
    "lax": "from jax import lax",
    "pl": "from jax.experimental import pallas as pl",
    "plgpu": "from jax.experimental.pallas import triton as plgpu",
    "primitives": "from jax.extend.core import primitives",
}
_CODE = """\
from jax.sharding import AbstractDevice, AbstractMesh


def kernel({refs}):
{body}


def call({arguments}):
    outputs = {outputs}
    return pl.pallas_call(kernel, outputs, grid={grid}, compiler_params=plgpu.CompilerParams())({arguments})


inputs = {inputs}
device = AbstractDevice(device_kind="{kind}", num_cores=None, platform="gpu")
with {settings}jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
    jax.jit(call).trace(*inputs).lower(lowering_platforms=("{platform}",))
"""


def write_script(steps: Sequence[JaxprStep], target: Target, grid: tuple[int, ...], lengths: Mapping[int, int]) -> str:
    """Returns operations of one body as a script that raises JAX's error when it lowers them.

    Values that the operations take from elsewhere become inputs of the script's kernel, as whole arrays, and their
    results become outputs. All names are new.

    Args:
      steps: the operations, in order.
      target: to lower for.
      grid: of the kernel, for operations that use the number of a program.
      lengths: replacements for lengths of axes, wherever these occur.

    Raises:
      NotPlainError: an operation or an array cannot be written in public JAX.
    """
    writer = _Writer(lengths)
    taken, defined = _free_variables(steps)
    changed = {id(step.operands[0]) for step in iter_steps(steps) if step.name in _WRITES}
    inputs = [each for each in taken if not (_is_ref(each) and id(each) in changed)]
    outputs = [each for each in taken if _is_ref(each) and id(each) in changed]
    body: list[str] = []
    for variable, name in zip(inputs, _names("x", "y", "z", "u", "v", "w"), strict=False):
        writer.names[variable] = f"{name}_ref" if _is_ref(variable) else name
        body += [] if _is_ref(variable) else [f"{name} = {name}_ref[...]"]
    outs = _names("o")
    writer.names.update((variable, f"{name}_ref") for variable, name in zip(outputs, outs, strict=False))
    refs = [writer.names[each].removesuffix("_ref") for each in (*inputs, *outputs)]
    body += writer.block(steps)
    for variable, name in zip(defined, outs, strict=False):
        body.append(f"{name}_ref[...] = {writer.names[variable]}")
        refs.append(name)
    uses_program = any(step.name in _PROGRAMS for step in iter_steps(steps))
    code = _CODE.format(
        settings="jax.enable_x64(True), " if jax.config.jax_enable_x64 else "",  # type: ignore[attr-defined]
        refs=", ".join(f"{name}_ref" for name in refs),
        body="\n".join(f"    {line}" for line in body),
        arguments=", ".join(refs[: len(inputs)]),
        outputs=writer.arrays([*outputs, *defined]),
        inputs=writer.arrays(inputs),
        grid=literal(grid) if uses_program else "()",
        kind=target.device_kind,
        platform=target.platform,
    )
    used = (text for name, text in _IMPORTS.items() if f"{name}." in code)
    return "\n".join((*used, code))


class _Writer:
    """Writes blocks of operations.

    Attributes:
      names: of the variables written so far.
    """

    def __init__(self, lengths: Mapping[int, int]) -> None:
        self.names: dict[Variable, str] = {}
        self._operations = OperationWriter(self._name_of, lengths)
        self._fresh = _names(*"abcdefghijklmn")
        self._steps = itertools.count()

    def block(self, steps: Sequence[JaxprStep]) -> list[str]:
        """Returns the lines of some operations."""
        lines: list[str] = []
        for step in steps:
            self._assign_names(each for each in step.results if each is not None)
            place = ascii(step.line)[1:-1]
            *before, last = self._lines(step)
            lines += [*before, f"{last}  # {place}" if place else last]
        return lines

    def arrays(self, variables: Sequence[Variable]) -> str:
        """Returns the source of a list of the variables' shapes and dtypes."""
        return f"[{', '.join(map(self._array, variables))}]"

    def _array(self, variable: Variable) -> str:
        aval = variable.aval
        try:
            shape, dtype = [self._operations.length(int(length)) for length in aval.shape], np.dtype(aval.dtype)
        except (AttributeError, TypeError) as error:
            raise NotPlainError(f"an argument of type {aval}") from error
        return f"jax.ShapeDtypeStruct({literal(tuple(shape))}, {literal(dtype)})"

    def _name_of(self, value: Variable) -> str:
        return constant(value) if is_literal(value) else self.names[value]

    def _assign_names(self, variables: Iterable[Variable]) -> None:
        self.names.update(zip(variables, self._fresh, strict=False))

    def _tuple(self, values: Sequence[Variable]) -> str:
        names = ["_" if each is None else self._name_of(each) for each in values]
        return f"({', '.join(names)}{',' * (len(names) == 1)})"

    def _lines(self, step: JaxprStep) -> list[str]:
        """Returns the definitions of the functions that a step calls, then the step in the last line."""
        params, operands, bodies, number = step.equation.params, step.operands, step.bodies, next(self._steps)
        match step.name:
            case "cond":
                names = [f"case{number}_{i}" for i in range(len(bodies))]
                lines = [line for name, body in zip(names, bodies, strict=True) for line in self._case(name, body)]
                which = self._name_of(operands[0])
                text = f"lax.switch({which}, [{', '.join(names)}])"
                if len(names) == 2:
                    text = f"lax.cond({which}, {names[1]}, {names[0]})"
                return [*lines, f"{self._tuple(step.results)} = {text}"]
            case "scan":
                fixed, carried = scan_counts(params)
                init, xs = operands[fixed : fixed + carried], operands[fixed + carried :]
                length = self._operations.length(params["length"])
                options = f"length={length}, reverse={params['reverse']}, unroll={literal(params['unroll'])}"
                text = f"lax.scan(turn{number}, {self._tuple(init)}, {self._tuple(xs)}, {options})"
                taken = f"{self._tuple(step.results[:carried])}, {self._tuple(step.results[carried:])}"
                return [*self._turn(f"turn{number}", bodies[0], carried), f"{taken} = {text}"]
            case "while":
                init = operands[params["cond_nconsts"] + params["body_nconsts"] :]
                lines = [*self._loop(f"test{number}", bodies[0]), *self._loop(f"turn{number}", bodies[1])]
                text = f"lax.while_loop(test{number}, turn{number}, {self._tuple(init)})"
                return [*lines, f"{self._tuple(step.results)} = {text}"]
        return [self._operations.statement(step)]

    def _case(self, name: str, body: JaxprBody) -> list[str]:
        return _function(f"{name}()", [*self.block(body.steps), f"return {self._tuple(body.results)}"])

    def _turn(self, name: str, body: JaxprBody, carried: int) -> list[str]:
        self._assign_names(body.arguments)
        before = [
            f"{self._tuple(part)} = {given}"
            for part, given in ((body.arguments[:carried], "carry"), (body.arguments[carried:], "xs"))
            if part
        ]
        inner = [*before, *self.block(body.steps)]
        after = f"return {self._tuple(body.results[:carried])}, {self._tuple(body.results[carried:])}"
        return _function(f"{name}(carry, xs)", [*inner, after])

    def _loop(self, name: str, body: JaxprBody) -> list[str]:
        """Returns the function for the condition of a loop, which returns one value, or for its body."""
        self._assign_names(body.arguments)
        inner = [f"{self._tuple(body.arguments)} = carry", *self.block(body.steps)]
        returned = self._name_of(body.results[0]) if name.startswith("test") else self._tuple(body.results)
        return _function(f"{name}(carry)", [*inner, f"return {returned}"])


def _function(head: str, lines: Sequence[str]) -> list[str]:
    return [f"def {head}:", *(f"    {line}" for line in lines)]


def _names(*names: str) -> Iterator[str]:
    """Yields these names, then the last one with numbers."""
    yield from names
    yield from (f"{names[-1]}{i}" for i in itertools.count(1))


def _is_ref(variable: Variable) -> bool:
    return hasattr(variable.aval, "inner_aval")


def _free_variables(steps: Sequence[JaxprStep]) -> tuple[list[Variable], list[Variable]]:
    """Returns the variables that operations take from outside, and those that they define but do not take."""
    outside: dict[Variable, None] = {}
    taken: set[Variable] = set()

    def visit(steps: Sequence[JaxprStep], results: Sequence[Variable], known: set[Variable]) -> None:
        for step in steps:
            take(step.operands, known)
            for body in step.bodies:
                visit(body.steps, body.results, known | set(body.arguments))
            known.update(step.results)
        take(results, known)

    def take(values: Sequence[Variable], known: set[Variable]) -> None:
        variables = [each for each in values if not is_literal(each)]
        taken.update(variables)
        outside.update((each, None) for each in variables if each not in known)

    visit(steps, (), set())
    defined = [each for step in steps for each in step.results if each is not None and each not in taken]
    return list(outside), defined
