"""Jaxprs and plain values as Python source: the one writer of every script that kerneltest hands out.

Operations are written in public JAX and Pallas: `lax.sort(x)`, `x_ref[0:4]`, `plgpu.load(x_ref.at[...], mask=m)`. All
source is ASCII, and names from records and suites appear in it as literals only, so they never become code.
"""

import enum
import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from kerneltest.core.targets import Target
from kerneltest.trace.primitives import AccessParts, Kind, access_parts, kind_of, primitive_named, primitive_of
from kerneltest.trace.walk import JaxprBody, JaxprStep, is_literal, iter_steps, scan_counts

Variable = Any  # a variable or a literal of a jaxpr, whose classes JAX keeps private
Params = Mapping[str, Any]


class NoSourceError(Exception):
    """Something that cannot be written in public JAX and Pallas, as far as this module knows."""


def _no_source(value: object) -> str:
    raise NoSourceError(f"a value of type {type(value).__name__}")


def literal(value: object, other: Callable[[Any], str] = _no_source) -> str:
    """The source of a plain value: None, a number, text, or a dict, list or tuple of plain values.

    Of an object that is not plain, `other` returns the source, or raises a NoSourceError.
    """
    if value is None or type(value) in (bool, int, str):
        return ascii(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    inside = functools.partial(literal, other=other)
    if type(value) is dict:
        return "{" + ", ".join(f"{inside(key)}: {inside(item)}" for key, item in value.items()) + "}"
    if type(value) is list:
        return f"[{', '.join(map(inside, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(inside, value))}{',' * (len(value) == 1)})"
    return other(value)


# Returns the source of an equation's parameter: a plain value, a dtype, or an object that `jax.lax` names.
def _parameter(value: Any) -> str:
    return literal(value, _object)


def _object(value: Any) -> str:
    kind = type(value)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        name = np.dtype(value).name
        name = "bool_" if name == "bool" else name
        if hasattr(jnp, name):
            return f"jnp.{name}"
    if isinstance(value, np.generic):
        return _parameter(value.item())
    if getattr(lax, kind.__name__, None) is kind:
        if isinstance(value, enum.Enum):
            return f"lax.{kind.__name__}.{value.name}"
        if hasattr(value, "_asdict"):
            return f"lax.{kind.__name__}({_keywords(value._asdict()).removeprefix(', ')})"
    return _no_source(value)


def _keywords(params: Params) -> str:
    return "".join(f", {name}={_parameter(value)}" for name, value in params.items())


# Spelling: primitives whose public function takes other arguments.

_SPELLED: Mapping[str, Callable[[list[str], Params], str]] = {
    "program_id": lambda x, p: f"pl.program_id({p['axis']})",
    "num_programs": lambda x, p: f"pl.num_programs({p['axis']})",
    "iota": lambda x, p: (
        f"lax.broadcasted_iota({', '.join(_parameter(p[k]) for k in ('dtype', 'shape', 'dimension'))})"
    ),
    "argmax": lambda x, p: f"lax.argmax({x[0]}, {_parameter(p['axes'][0])}, {_parameter(p['index_dtype'])})",
    "argmin": lambda x, p: f"lax.argmin({x[0]}, {_parameter(p['axes'][0])}, {_parameter(p['index_dtype'])})",
    "concatenate": lambda x, p: f"lax.concatenate([{', '.join(x)}], {_parameter(p['dimension'])})",
    "sort": lambda x, p: f"lax.sort({x[0] if len(x) == 1 else '[' + ', '.join(x) + ']'}{_keywords(p)})",
    "reciprocal": lambda x, p: f"pl.reciprocal({x[0]}{_keywords(p)})",
    "dynamic_slice": lambda x, p: f"lax.dynamic_slice({x[0]}, [{', '.join(x[1:])}], {_parameter(p['slice_sizes'])})",
    "dynamic_update_slice": lambda x, p: f"lax.dynamic_update_slice({x[0]}, {x[1]}, [{', '.join(x[2:])}])",
}
_SHAPE_PARAMETERS = frozenset({"shape", "new_sizes", "limit_indices", "slice_sizes", "sizes"})
_ACCESS_OPTIONS = ("cache_modifier", "eviction_policy", "is_volatile")


def _call(primitive: Any, name: str, operands: list[str], params: Params) -> str:
    if name in _SPELLED:
        return _SPELLED[name](operands, params)
    name = primitive_named(name).lax
    if (chosen := _keyword_parameters(name, len(operands), params)) is not None:
        return f"lax.{name}({', '.join(operands)}{_keywords(chosen)})"
    public = next((n for n in dir(primitives) if getattr(primitives, n) is primitive), "")
    if not public:
        raise NoSourceError(f"primitive {primitive}")
    return f"primitives.{public}.bind({', '.join(operands)}{_keywords(params)})"


# Returns the keyword arguments for `jax.lax.NAME` after its operands; None if it does not take these.
def _keyword_parameters(name: str, operands: int, params: Params) -> Params | None:
    try:
        signature = _signature(name)
        taken = signature.bind_partial(*range(operands)).arguments
    except (AttributeError, TypeError, ValueError):  # not a function of Python's, or one of fewer operands
        return None
    left = [p for p in signature.parameters.values() if p.name not in taken and p.kind is not p.VAR_POSITIONAL]
    if any(p.default is p.empty and p.name not in params for p in left):
        return None
    given = [(p.name, params[p.name], p.default) for p in left if p.name in params]
    return {name: value for name, value, default in given if not is_default(value, default)}


@functools.cache
def _signature(name: str) -> inspect.Signature:
    return inspect.signature(getattr(lax, name))


def is_default(value: Any, default: Any) -> bool:
    """True if an argument has its default, as far as the two can be compared."""
    try:
        return value is default or bool(type(value) is type(default) and value == default)
    except Exception:
        return False


class _Writer:
    def __init__(self, lengths: Mapping[int, int]) -> None:
        self.names: dict[Variable, str] = {}
        self._lengths = lengths
        self._fresh = _names(*"abcdefghijklmn")
        self._steps = itertools.count()

    def block(self, steps: Sequence[JaxprStep]) -> list[str]:
        lines: list[str] = []
        for step in steps:
            self._assign_names(result for result in step.results if result is not None)
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
            shape, dtype = tuple(self._length(int(length)) for length in aval.shape), np.dtype(aval.dtype)
        except (AttributeError, TypeError) as error:
            raise NoSourceError(f"an argument of type {aval}") from error
        return f"jax.ShapeDtypeStruct({_parameter(shape)}, {_parameter(dtype)})"

    def _length(self, length: int) -> int:
        return self._lengths.get(length, length)

    def _assign_names(self, variables: Iterable[Variable]) -> None:
        self.names.update(zip(variables, self._fresh, strict=False))

    def _name(self, value: Variable) -> str:
        if not is_literal(value):
            return self.names[value]
        array = np.asarray(value.val)
        if array.shape:
            raise NoSourceError("a constant array")
        plain = _parameter(array.item())
        return plain if getattr(value.aval, "weak_type", False) else f"{_parameter(array.dtype)}({plain})"

    def _tuple(self, values: Sequence[Variable]) -> str:
        names = ["_" if value is None else self._name(value) for value in values]
        return f"({', '.join(names)}{',' * (len(names) == 1)})"

    def _lines(self, step: JaxprStep) -> list[str]:
        params, operands, bodies, number = step.equation.params, step.operands, step.bodies, next(self._steps)
        match step.name:
            case "cond":
                names = [f"case{number}_{i}" for i in range(len(bodies))]
                lines = []
                for name, body in zip(names, bodies, strict=True):
                    lines += self._function(f"{name}()", body, {}, self._tuple, body.results)
                which = self._name(operands[0])
                text = f"lax.switch({which}, [{', '.join(names)}])"
                if len(names) == 2:
                    text = f"lax.cond({which}, {names[1]}, {names[0]})"
                return [*lines, f"{self._tuple(step.results)} = {text}"]
            case "scan":
                (body,), (fixed, carried) = bodies, scan_counts(params)
                init, xs = operands[fixed : fixed + carried], operands[fixed + carried :]
                options = f"reverse={params['reverse']}, unroll={_parameter(params['unroll'])}"
                options = f"length={self._length(params['length'])}, {options}"
                taken = {"carry": body.arguments[:carried], "xs": body.arguments[carried:]}
                taken = {given: part for given, part in taken.items() if part}

                def both(values: Sequence[Variable]) -> str:
                    return f"{self._tuple(values[:carried])}, {self._tuple(values[carried:])}"

                lines = self._function(f"turn{number}(carry, xs)", body, taken, both, body.results)
                text = f"lax.scan(turn{number}, {self._tuple(init)}, {self._tuple(xs)}, {options})"
                return [*lines, f"{both(step.results)} = {text}"]
            case "while":
                (test, turn), init = bodies, operands[params["cond_nconsts"] + params["body_nconsts"] :]
                taken, done = {"carry": test.arguments}, {"carry": turn.arguments}
                lines = self._function(f"test{number}(carry)", test, taken, self._name, test.results[0])
                lines += self._function(f"turn{number}(carry)", turn, done, self._tuple, turn.results)
                text = f"lax.while_loop(test{number}, turn{number}, {self._tuple(init)})"
                return [*lines, f"{self._tuple(step.results)} = {text}"]
        return [self._statement(step)]

    def _function(
        self, head: str, body: JaxprBody, taken: Params, write: Callable[[Any], str], returned: Any
    ) -> list[str]:
        self._assign_names(body.arguments)
        lines = [f"{self._tuple(part)} = {given}" for given, part in taken.items()]
        lines += [*self.block(body.steps), f"return {write(returned)}"]
        return [f"def {head}:", *(f"    {line}" for line in lines)]

    def _statement(self, step: JaxprStep) -> str:
        params, operands, name = step.equation.params, step.operands, self._name
        parts = access_parts(step.equation, operands)
        ref = "" if parts is None else name(parts.reference)
        match step.name, parts:
            case "get", AccessParts():
                text = f"{ref}[{self._index(parts)}]"
            case "swap", AccessParts():
                if any(step.results):
                    raise NoSourceError("a swap whose old value is used")
                return f"{ref}[{self._index(parts)}] = {name(parts.value)}"
            case "addupdate", AccessParts():
                return f"jax.ref.addupdate({ref}, {self._index(parts, as_tuple=True)}, {name(parts.value)})"
            case "masked_load", AccessParts():
                options = self._options(params, mask=parts.mask, other=parts.other)
                text = f"plgpu.load({ref}.at[{self._index(parts)}]{options})"
            case "masked_swap", AccessParts():
                options = self._options(params, mask=parts.mask)
                return f"plgpu.store({ref}.at[{self._index(parts)}], {name(parts.value)}{options})"
            case "atomic_rmw", AccessParts():
                function, where = f"atomic_{params['atomic_type'].value}", self._index(parts, as_tuple=True)
                options = self._options({}, mask=parts.mask)
                text = f"plgpu.{function}({ref}, {where}, {name(parts.value)}{options})"
            case _:
                text = _call(step.equation.primitive, step.name, list(map(name, operands)), self._resized(params))
        names = ["_" if result is None else name(result) for result in step.results]
        return f"{', '.join(names)} = {text}" if any(step.results) else text

    def _resized(self, params: Params) -> Params:
        shapes = {key: value for key in _SHAPE_PARAMETERS if isinstance(value := params.get(key), tuple)}
        sizes = {key: tuple(self._length(n) if isinstance(n, int) else n for n in s) for key, s in shapes.items()}
        return {**params, **sizes}

    def _options(self, params: Params, **operands: Variable) -> str:
        keywords = "".join(f", {name}={self._name(value)}" for name, value in operands.items() if value is not None)
        return keywords + _keywords({name: params[name] for name in _ACCESS_OPTIONS if params.get(name)})

    def _index(self, parts: AccessParts, *, as_tuple: bool = False) -> str:
        transforms, shape = parts.transforms, parts.reference.aval.shape
        if not transforms:
            return "..."
        if len(transforms) > 1 or type(transforms[0]).__name__ != "NDIndexer":
            raise NoSourceError("a reference seen through more than one index")
        axes = [self._axis(i, n, as_tuple=as_tuple) for i, n in zip(transforms[0].indices, shape, strict=True)]
        return f"({', '.join(axes)},)" if as_tuple else ", ".join(axes)

    def _axis(self, index: Any, length: int, *, as_tuple: bool) -> str:
        if type(index).__name__ != "Slice":
            return str(int(index)) if isinstance(index, (int, np.integer)) else self._name(index)
        start, size, stride = index.start, index.size, index.stride
        step = f", {stride}" if stride != 1 else ""
        if as_tuple or not isinstance(start, int):
            return f"pl.ds({self._axis(start, length, as_tuple=False)}, {self._length(size)}{step})"
        if (start, size, stride) == (0, length, 1):
            return ":"
        return f"{start}:{start + (self._length(size) - 1) * stride + 1}{step.replace(', ', ':')}"


# Operations of a kernel as a script that lowers them for a GPU, without needing one.

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


def lowering_script(
    steps: Sequence[JaxprStep], target: Target, grid: tuple[int, ...], lengths: Mapping[int, int]
) -> str:
    """Returns operations of one body as a script that raises JAX's error when it lowers them.

    Values that the operations take from elsewhere become inputs of the script's kernel, as whole arrays, and their
    results become outputs. All names are new. `lengths` replaces lengths of axes, wherever these occur.
    """
    writer = _Writer(lengths)
    taken, defined = _free_variables(steps)
    changed = {id(step.operands[0]) for step in iter_steps(steps) if primitive_of(step.equation).writes}
    inputs = [variable for variable in taken if not (_is_ref(variable) and id(variable) in changed)]
    outputs = [variable for variable in taken if _is_ref(variable) and id(variable) in changed]
    body: list[str] = []
    for variable, name in zip(inputs, _names("x", "y", "z", "u", "v", "w"), strict=False):
        writer.names[variable] = f"{name}_ref" if _is_ref(variable) else name
        body += [] if _is_ref(variable) else [f"{name} = {name}_ref[...]"]
    outs = _names("o")
    writer.names.update((variable, f"{name}_ref") for variable, name in zip(outputs, outs, strict=False))
    refs = [writer.names[variable].removesuffix("_ref") for variable in (*inputs, *outputs)]
    body += writer.block(steps)
    for variable, name in zip(defined, outs, strict=False):
        body.append(f"{name}_ref[...] = {writer.names[variable]}")
        refs.append(name)
    uses_program = any(kind_of(step.equation) is Kind.PROGRAM for step in iter_steps(steps))
    code = _CODE.format(
        settings="jax.enable_x64(True), " if jax.config.read("jax_enable_x64") else "",
        refs=", ".join(f"{name}_ref" for name in refs),
        body="\n".join(f"    {line}" for line in body),
        arguments=", ".join(refs[: len(inputs)]),
        outputs=writer.arrays([*outputs, *defined]),
        inputs=writer.arrays(inputs),
        grid=_parameter(grid) if uses_program else "()",
        kind=target.device_kind,
        platform=target.platform,
    )
    used = (text for name, text in _IMPORTS.items() if f"{name}." in code)
    return "\n".join((*used, code))


def _names(*names: str) -> Iterator[str]:
    yield from names
    yield from (f"{names[-1]}{i}" for i in itertools.count(1))


def _is_ref(variable: Variable) -> bool:
    return hasattr(variable.aval, "inner_aval")


def _free_variables(steps: Sequence[JaxprStep]) -> tuple[list[Variable], list[Variable]]:
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
        variables = [value for value in values if not is_literal(value)]
        taken.update(variables)
        outside.update((variable, None) for variable in variables if variable not in known)

    visit(steps, (), set())
    defined = [result for step in steps for result in step.results if result is not None and result not in taken]
    return list(outside), defined
