"""Operations of a kernel as a script of plain Pallas that lowers them for a GPU, without needing one."""

import enum
import functools
import inspect
import itertools
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from kerneltest.backends.codegen.tiers import lower_call
from kerneltest.core.details import Detail, NotBuilt, ResourceExceeded
from kerneltest.core.failures import Failure, exception_text, format_exception
from kerneltest.core.targets import Target
from kerneltest.trace.evaluator import JaxprBody, JaxprStep, inline_jaxpr, is_literal, iter_steps
from kerneltest.trace.jax_compat.source_lines import equations_being_lowered, line_of_nested
from kerneltest.trace.primitives import Kind, kind_of, primitive_of
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import primitive_name, scan_counts

# Source code of single operations: `lax.sort(x)`, `x_ref[0:4]`, `plgpu.load(x_ref.at[...], mask=m)`.

Operand = Any  # a variable or a literal of a jaxpr, whose classes JAX keeps private
Index = Any  # an int, a `Slice` or an operand
NameOf = Callable[[Operand], str]


class NotPlainError(Exception):
    """Something that cannot be written in public JAX and Pallas, as far as this module knows."""


class OperationWriter:
    """Writes operations.

    Args:
      name_of: returns the source of an operand.
      lengths: replacements for lengths of axes, wherever these occur.
    """

    def __init__(self, name_of: NameOf, lengths: Mapping[int, int]) -> None:
        self.name_of, self.lengths = name_of, lengths

    def statement(self, step: JaxprStep) -> str:
        """Returns an operation without a body as an assignment to its results.

        Raises:
          NotPlainError: it cannot be written in public JAX.
        """
        params, operands = step.equation.params, step.operands
        match step.name:
            case "get":
                ref, *rest = operands
                return self._assignment(
                    step, f"{self.name_of(ref)}[{self._index(ref, params['tree'].unflatten(rest))}]"
                )
            case "swap":
                if any(step.results):
                    raise NotPlainError("a swap whose old value is used")
                ref, value, *rest = operands
                return (
                    f"{self.name_of(ref)}[{self._index(ref, params['tree'].unflatten(rest))}] = {self.name_of(value)}"
                )
            case "addupdate":
                ref, value, *rest = operands
                index = self._index(ref, params["tree"].unflatten(rest), as_tuple=True)
                return f"jax.ref.addupdate({self.name_of(ref)}, {index}, {self.name_of(value)})"
            case "masked_load":
                ref, transforms, mask, other = params["args_tree"].unflatten(operands)
                options = self._options(params, mask=mask, other=other)
                return self._assignment(step, f"plgpu.load({self._at(ref, transforms)}{options})")
            case "masked_swap":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                return (
                    f"plgpu.store({self._at(ref, transforms)}, {self.name_of(value)}{self._options(params, mask=mask)})"
                )
            case "atomic_rmw":
                ref, transforms, value, mask = params["args_tree"].unflatten(operands)
                where = f"{self.name_of(ref)}, {self._index(ref, transforms, as_tuple=True)}"
                name, options = f"atomic_{params['atomic_type'].value}", self._options({}, mask=mask)
                return self._assignment(step, f"plgpu.{name}({where}, {self.name_of(value)}{options})")
        return self._assignment(step, self._call(step))

    def length(self, length: int) -> int:
        """Returns the length to write for a length."""
        return self.lengths.get(length, length)

    def _assignment(self, step: JaxprStep, text: str) -> str:
        names = ["_" if each is None else self.name_of(each) for each in step.results]
        return f"{', '.join(names)} = {text}" if any(step.results) else text

    def _options(self, params: Mapping[str, Any], **operands: Operand) -> str:
        """Returns the keyword arguments of a load or a store: operands that are not None, and parameters."""
        keywords = "".join(f", {name}={self.name_of(value)}" for name, value in operands.items() if value is not None)
        names = ("cache_modifier", "eviction_policy", "is_volatile")
        return keywords + _keywords({name: params[name] for name in names if params.get(name)})

    def _at(self, ref: Operand, transforms: Any) -> str:
        return f"{self.name_of(ref)}.at[{self._index(ref, transforms)}]"

    def _index(self, ref: Operand, transforms: Any, *, as_tuple: bool = False) -> str:
        """Returns the source of an index, as in brackets or as a tuple."""
        if not transforms:
            return "..."
        if len(transforms) > 1 or type(transforms[0]).__name__ != "NDIndexer":
            raise NotPlainError("a reference seen through more than one index")
        axes = [self._axis(i, n, as_tuple=as_tuple) for i, n in zip(transforms[0].indices, ref.aval.shape, strict=True)]
        return f"({', '.join(axes)},)" if as_tuple else ", ".join(axes)

    def _axis(self, index: Index, length: int, *, as_tuple: bool) -> str:
        if type(index).__name__ != "Slice":
            return self._number(index)
        start, size, stride = index.start, index.size, index.stride
        step = f", {stride}" if stride != 1 else ""
        if as_tuple or not isinstance(start, int):
            return f"pl.ds({self._number(start)}, {self.length(size)}{step})"
        if (start, size, stride) == (0, length, 1):
            return ":"
        return f"{start}:{start + (self.length(size) - 1) * stride + 1}{step.replace(', ', ':')}"

    def _number(self, index: Index) -> str:
        return str(int(index)) if isinstance(index, (int, np.integer)) else self.name_of(index)

    def _call(self, step: JaxprStep) -> str:
        operands = [self.name_of(each) for each in step.operands]
        params = {key: self._resize(key, value) for key, value in step.equation.params.items()}
        if step.name in _SPECIAL:
            return _SPECIAL[step.name](operands, params)
        name = primitive_of(step.equation).lax
        return _function_call(name, operands, params) or _primitive_call(step.equation.primitive, operands, params)

    def _resize(self, key: str, value: Any) -> Any:
        if key in _SHAPE_PARAMETERS and isinstance(value, tuple):
            return tuple(self.length(each) if isinstance(each, int) else each for each in value)
        return value


_SHAPE_PARAMETERS = frozenset({"shape", "new_sizes", "limit_indices", "slice_sizes", "sizes"})


def _list(operands: list[str]) -> str:
    return f"[{', '.join(operands)}]"


# Primitives whose public function takes other arguments.
_SPECIAL: Mapping[str, Callable[[list[str], Mapping[str, Any]], str]] = {
    "program_id": lambda _, params: f"pl.program_id({params['axis']})",
    "num_programs": lambda _, params: f"pl.num_programs({params['axis']})",
    "iota": lambda _, p: (
        f"lax.broadcasted_iota({literal(p['dtype'])}, {literal(p['shape'])}, {literal(p['dimension'])})"
    ),
    "argmax": lambda x, p: f"lax.argmax({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "argmin": lambda x, p: f"lax.argmin({x[0]}, {literal(p['axes'][0])}, {literal(p['index_dtype'])})",
    "concatenate": lambda x, p: f"lax.concatenate({_list(x)}, {literal(p['dimension'])})",
    "sort": lambda x, p: f"lax.sort({x[0] if len(x) == 1 else _list(x)}{_keywords(p)})",
    "reciprocal": lambda x, p: f"pl.reciprocal({x[0]}{_keywords(p)})",
    "dynamic_slice": lambda x, p: f"lax.dynamic_slice({x[0]}, {_list(x[1:])}, {literal(p['slice_sizes'])})",
    "dynamic_update_slice": lambda x, p: f"lax.dynamic_update_slice({x[0]}, {x[1]}, {_list(x[2:])})",
}  # fmt: skip


def _function_call(name: str, operands: list[str], params: Mapping[str, Any]) -> str:
    """Returns a call of the function of `jax.lax` with the primitive's name and parameters, or "" if there is none."""
    parameters = _parameters(name)
    if parameters is None:
        return ""
    rest = list(parameters)
    for _ in operands:
        if not rest or rest[0].kind is inspect.Parameter.KEYWORD_ONLY:
            return ""
        if rest[0].kind is not inspect.Parameter.VAR_POSITIONAL:
            del rest[0]
    rest = [each for each in rest if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    if any(each.default is each.empty and each.name not in params for each in rest):
        return ""
    chosen = {p.name: params[p.name] for p in rest if p.name in params and not _is_default(params[p.name], p.default)}
    return f"lax.{name}({', '.join(operands)}{_keywords(chosen)})"


@functools.cache
def _parameters(name: str) -> tuple[inspect.Parameter, ...] | None:
    try:
        return tuple(inspect.signature(getattr(lax, name)).parameters.values())
    except (AttributeError, TypeError, ValueError):
        return None


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _primitive_call(primitive: Any, operands: list[str], params: Mapping[str, Any]) -> str:
    """Returns a call of the primitive itself, under its name in `jax.extend.core.primitives`."""
    name = next((n for n in dir(primitives) if getattr(primitives, n) is primitive), "")
    if not name:
        raise NotPlainError(f"primitive {primitive}")
    return f"primitives.{name}.bind({', '.join(operands)}{_keywords(params)})"


def _keywords(params: Mapping[str, Any]) -> str:
    return "".join(f", {name}={literal(value)}" for name, value in params.items())


def literal(value: Any) -> str:
    """Returns Python source of a parameter: a number, text, a dtype, or an object that `jax.lax` has a name for.

    Raises:
      NotPlainError: it is another object.
    """
    kind = type(value)
    if value is None or kind in (bool, int):
        return repr(value)
    if kind is str:
        return ascii(value)
    if kind is float:
        return repr(value) if np.isfinite(value) else f"float('{value}')"
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = np.dtype(value).name
        if getattr(jnp, {"bool": "bool_"}.get(name, name), None) is not None:
            return f"jnp.{'bool_' if name == 'bool' else name}"
    if isinstance(value, np.generic):
        return literal(value.item())
    if getattr(lax, kind.__name__, None) is kind:
        if isinstance(value, enum.Enum):
            return f"lax.{kind.__name__}.{value.name}"
        if hasattr(value, "_asdict"):
            return f"lax.{kind.__name__}({_keywords(value._asdict()).removeprefix(', ')})"
    if kind in (tuple, list):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    raise NotPlainError(f"a parameter of type {kind.__name__}")


def constant(value: Operand) -> str:
    """Returns Python source of a literal operand: a plain number, or one of its dtype.

    Raises:
      NotPlainError: it is not a number.
    """
    assert is_literal(value)
    array = np.asarray(value.val)
    if array.shape:
        raise NotPlainError("a constant array")
    plain = literal(array.item())
    return plain if getattr(value.aval, "weak_type", False) else f"{literal(array.dtype)}({plain})"


Variable = Any  # a variable or a literal of a jaxpr, whose classes JAX keeps private

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
    changed = {id(step.operands[0]) for step in iter_steps(steps) if primitive_of(step.equation).writes}
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
    uses_program = any(kind_of(step.equation) is Kind.PROGRAM for step in iter_steps(steps))
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


# Reduction of a kernel to the smallest part that still does not lower, as a script of plain Pallas.


@dataclass(frozen=True, slots=True)
class ReducedProgram:
    """A part of a kernel that fails by itself.

    Attributes:
      script: Python that imports only JAX and Pallas and needs no GPU. It exits with JAX's error and code 1 while the
        part does not lower, and with 0 once it does.
      equations: the number of the kernel's equations that are left.
      total: the number of equations in the kernel, at any depth.
      line: FILE:LINE of the user's source for the one that fails, or "".
    """

    script: str
    equations: int
    total: int
    line: str


def reduce_program(traced: Traced, target: Target, failure: Failure, seconds: float = 5.0) -> ReducedProgram | None:
    """Returns the smallest part of a kernel's jaxpr that still fails to lower with the same error.

    Args:
      traced: the kernel.
      target: that it was lowered for.
      failure: of that lowering.
      seconds: the time limit, after which the smallest part so far is returned.

    Returns:
      None if the kernel lowers or fails with another error, if no part fails by itself (because of a parameter of the
      whole call, for example), if it is not a Triton kernel, or if no part can be written in plain Pallas.
    """
    found = _failing_call(traced, target, failure)
    if found is None:
        return None
    call, error = found
    path = equations_being_lowered(error)
    if not path:
        return None
    kernel = inline_jaxpr(call.equation.params["jaxpr"])
    search = _ReductionSearch(target, call.grid, _Kind.of(error), time.monotonic() + seconds)
    part = next((part for part in _starts(kernel, path) if search.fails(part)), None)
    if part is None:
        return None
    part = search.drop_steps(part)
    text = _header(error, target) + search.script(part, search.shorten_axes(part))
    return ReducedProgram(text, _size(part), _size(kernel.steps), line_of_nested(path))


Part = tuple[JaxprStep, ...]
Equation = Any  # jax.core.JaxprEqn, which JAX keeps private


def _failing_call(traced: Traced, target: Target, failure: Failure) -> tuple[Call, BaseException] | None:
    """Returns the first Pallas call that does not lower and JAX's exception, if that is the cause of `failure`."""
    if "mosaic_gpu" in traced.dialects:
        return None
    for call in traced.calls:
        try:
            lower_call(call, target)
        except Failure as again:
            return (call, again.__cause__) if _is_same(again, failure) and again.__cause__ is not None else None
    return None


def _is_same(one: Failure, other: Failure) -> bool:
    """Checks whether JAX raised the same error for two kernels."""
    return one.verdict is other.verdict and _error_of(one.detail) == _error_of(other.detail)


def _error_of(detail: Detail) -> tuple[object, ...]:
    if isinstance(detail, NotBuilt):
        return NotBuilt, detail.error, detail.primitive, _words(detail.said)
    if isinstance(detail, ResourceExceeded):
        return ResourceExceeded, detail.resource, _words(detail.said)
    return (detail,)


_LONGEST = 1000  # characters of an error that are compared


def _words(text: str) -> frozenset[str]:
    """Returns the words of JAX's error, without numbers, quoted names, shapes, brackets, and the dump after it."""
    said = re.sub(r'"[^"]*"|(?<=<)(?:\d+x)+', "", "\n".join(text.splitlines()[:2])[:_LONGEST])
    brackets = 1
    while brackets:
        said, brackets = re.subn(r"\([^()]*\)", "", said)
    return frozenset(re.findall(r"[A-Za-z]\w*", said))


@dataclass(frozen=True, slots=True)
class _Kind:
    """The properties of an error to preserve: its class, its words, and the primitive that was being lowered."""

    error: type[BaseException]
    words: frozenset[str]
    primitive: str

    @classmethod
    def of(cls, error: BaseException) -> "_Kind":
        path = equations_being_lowered(error)
        return cls(type(error), _words(exception_text(error)), primitive_name(path[-1]) if path else "")


def _starts(body: JaxprBody, path: Sequence[Equation]) -> Iterator[Part]:
    """Yields parts of a kernel that may fail by themselves.

    First the failing equation with more and more of the steps that it depends on, then the same for the loop or
    conditional around it, and so on. A lowering rule may lower equations of its own, so the failing equation is the
    last one of `path` that belongs to the kernel.
    """
    places = (_enclosing_steps(body, equation) for equation in reversed(path))
    for steps, at in next(filter(None, places), []):
        yield from _slices(steps, at)


def _enclosing_steps(body: JaxprBody, failing: Equation) -> list[tuple[Part, int]]:
    """Returns the steps and the index in them of an equation, then of each equation around it, from the inside out."""
    for at, step in enumerate(body.steps):
        if step.equation is failing:
            return [(body.steps, at)]
        for inner in step.bodies:
            if found := _enclosing_steps(inner, failing):
                return [*found, (body.steps, at)]
    return []


def _slices(steps: Part, at: int) -> Iterator[Part]:
    """Yields a step, then that with the steps that define its operands, then with those that define theirs, ..."""
    source = {result: i for i, step in enumerate(steps) for result in step.results if result is not None}
    chosen, new = {at}, {at}
    while new:
        yield tuple(steps[i] for i in sorted(chosen))
        new = {source[v] for i in new for v in steps[i].operands if not is_literal(v) and v in source} - chosen
        chosen |= new


@dataclass(frozen=True, slots=True)
class _ReductionSearch:
    """Tries parts of a kernel, each as the script that users would get.

    Attributes:
      target: to lower for.
      grid: of the kernel.
      kind: of the error to preserve.
      end: the time limit, by the monotonic clock.
    """

    target: Target
    grid: tuple[int, ...]
    kind: _Kind
    end: float

    def script(self, part: Part, lengths: Mapping[int, int]) -> str:
        """Returns a part as a script."""
        return write_script(part, self.target, self.grid, lengths)

    def fails(self, part: Part, lengths: Mapping[int, int] = MappingProxyType({})) -> bool:
        """Checks whether a part fails with the kernel's error; never after the time limit."""
        if time.monotonic() > self.end:
            return False
        try:
            exec(compile(self.script(part, lengths), "<cut>", "exec"), {"__name__": "__main__"})
        except NotPlainError:
            return False
        except Exception as error:
            return _Kind.of(error) == self.kind
        return False

    def drop_steps(self, part: Part) -> Part:
        """Returns a part without the steps, at any depth, that the error does not need."""
        count = _size(part) // 2
        while count:
            steps = list(iter_steps(part))
            for start in range(0, len(steps), count):
                dropped = steps[start : start + count]
                smaller = next(filter(self.fails, _drop(part, dropped)), None)
                if smaller is not None:
                    part = smaller
                    break
            else:
                count //= 2
        return part

    def shorten_axes(self, part: Part) -> dict[int, int]:
        """Returns a replacement for each length of an axis: the least with which the part fails, each used once."""
        lengths = {length: length for length in sorted(_lengths(part))}
        for length in lengths:
            others = (other for other in (2, 3, 4, 8, 16, 32, 64) if other < length and other not in lengths.values())
            shorter = (other for other in others if self.fails(part, {**lengths, length: other}))
            lengths[length] = next(shorter, length)
        return lengths


def _size(steps: Part) -> int:
    return sum(1 for _ in iter_steps(steps))


def _drop(part: Part, dropped: Sequence[JaxprStep]) -> Iterator[Part]:
    """Yields a part without some steps: their results become inputs, or an operand of a single one takes its place."""
    smaller = _remove(part, {id(step) for step in dropped}, {})
    if smaller:
        yield smaller
    results = [result for step in dropped for result in step.results if result is not None]
    if len(dropped) == len(results) == 1:
        (result,) = results
        same_type = [v for v in dropped[0].operands if v.aval.str_short() == result.aval.str_short()]
        yield from (_remove(part, {id(dropped[0])}, {result: v}) for v in same_type)


def _remove(steps: Part, dropped: Collection[int], instead: Mapping[Variable, Variable]) -> Part:
    """Returns the steps that are not dropped, at any depth, with operands replaced as `instead` says."""

    def read(values: Sequence[Variable]) -> tuple[Variable, ...]:
        return tuple(v if is_literal(v) else instead.get(v, v) for v in values)

    return tuple(
        replace(
            step,
            operands=read(step.operands),
            bodies=tuple(
                replace(body, steps=_remove(body.steps, dropped, instead), results=read(body.results))
                for body in step.bodies
            ),
        )
        for step in steps
        if id(step) not in dropped
    )


def _lengths(part: Part) -> set[int]:
    """Returns the lengths of all axes of a part's operands and results, but 1."""
    variables = (v for step in iter_steps(part) for v in (*step.operands, *step.results) if v is not None)
    return {n for v in variables for n in getattr(v.aval, "shape", ()) if isinstance(n, int) and n > 1}


def _header(error: BaseException, target: Target) -> str:
    lines = [f"JAX {jax.__version__} does not lower this for {target.id}:"]
    lines += format_exception(error).splitlines()[:2]
    lines += ["It needs no GPU. It exits with that error and code 1, or with 0 once it lowers."]
    return "".join(f"# {ascii(line)[1:-1]}\n" for line in lines)
