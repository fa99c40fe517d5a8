"""Temporary changes to JAX: attributes of its modules, the platform that it reports, and its settings.

Each change is undone on exit, after an exception as well. Changes may be nested and may overlap between threads: the
latest of those still active applies, and the last one to end restores JAX's own value.
"""

import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax._src import config, core
from jax._src.interpreters import mlir
from jax._src.pallas.hlo_interpreter import pallas_call_hlo_interpret
from jax._src.pallas.mosaic import tpu_info
from jax._src.pallas.pallas_call import pallas_call_p

from kerneltest.trace.jax_compat.jaxprs import AbstractValue, ClosedJaxpr, Equation, JaxArray, Params

T = TypeVar("T")


@dataclass(frozen=True, eq=False, slots=True)
class Replacement:
    """A value to put in place of an attribute that a module or class has itself, or of an item of a dict."""

    owner: Any
    name: Any
    value: object

    def read(self) -> object:
        if isinstance(self.owner, dict):
            return self.owner[self.name]
        return type(self.owner) if self.name == "__class__" else vars(self.owner)[self.name]

    def write(self) -> None:
        if isinstance(self.owner, dict):
            self.owner[self.name] = self.value
        else:
            setattr(self.owner, self.name, self.value)


_lock = threading.Lock()
# For each place that is replaced now: JAX's own value, then the active replacements in the order of their entry.
_layers: dict[tuple[int, Any], list[Replacement]] = {}


@contextmanager
def replace_attributes(*replacements: Replacement) -> Iterator[None]:
    """Replaces attributes of JAX, and restores them on exit.

    A thread started inside that outlives the context sees JAX's own attributes from then on.
    """
    with ExitStack() as stack:
        for entry in map(replace, replacements):  # copies, since a replacement may be entered repeatedly
            with _lock:
                _layers.setdefault((id(entry.owner), entry.name), [replace(entry, value=entry.read())]).append(entry)
                entry.write()
            stack.callback(_end, entry)
        yield


def _end(entry: Replacement) -> None:
    place = id(entry.owner), entry.name
    with _lock:
        layers = _layers[place]
        layers.remove(entry)
        layers[-1].write()
        if len(layers) == 1:
            del _layers[place]


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Sets a context variable, and restores it on exit."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


_answer: ContextVar[Callable[[], str] | None] = ContextVar("default_backend", default=None)


@contextmanager
def report_platform(answer: Callable[[], str]) -> Iterator[None]:
    """Has `jax.default_backend()` return what `answer` does, in this thread; "" stands for the machine's own."""
    original = jax.default_backend

    def default_backend() -> str:
        own = _answer.get()  # None in a thread that only runs at the same time
        return (own() if own is not None else "") or original()

    with setting(_answer, answer), replace_attributes(Replacement(jax, "default_backend", default_backend)):
        yield


def keep_jax_frames() -> Any:
    """A context in which the exceptions that JAX raises keep JAX's own frames."""
    return config.traceback_filtering("off")


@contextmanager
def disable_debugging_in_callbacks() -> Iterator[None]:
    """Switches JAX's debugging modes off for all threads: callbacks run on XLA's, which ignore thread-local values."""
    on = [f"jax_{name}" for name in ("debug_nans", "debug_infs", "disable_jit") if getattr(config, name).get_global()]
    for name in on:
        jax.config.update(name, False)
    try:
        yield
    finally:
        for name in on:
            jax.config.update(name, True)


# Pallas' general interpreter without the imports of those for Mosaic kernels.
#
# JAX imports both of these, which takes a third of a second, to see that a call with `interpret=True` needs neither.

_registered: Any = mlir._lowerings[pallas_call_p]


def interpret_directly() -> AbstractContextManager[None]:
    """A context in which Pallas calls are lowered as JAX lowers them, but without importing what they do not need."""
    return replace_attributes(Replacement(mlir._lowerings, pallas_call_p, replace(_registered, rule=_lower_call)))


def _lower_call(context: Any, *operands: Any, **params: Any) -> Any:
    if params["interpret"] is not True or params["jaxpr"].constvars:
        return _registered.rule(context, *operands, **params)
    own = {name: value for name, value in params.items() if name != "interpret"}
    interpreter: Any = functools.partial(pallas_call_hlo_interpret, **own)
    lower: Any = mlir.lower_fun(interpreter, multiple_results=True)
    return lower(context, *operands)


# JAX's evaluation and lowering, intercepted: with other parameters for some primitives, or stopped part-way.

# From a primitive's name and parameters to the parameters that it is evaluated with.
ChooseParameters = Callable[[str, Params], dict[str, Any]]


def call(function: Callable[..., Any], arguments: Sequence[JaxArray], parameters: ChooseParameters) -> Any:
    """Calls `function(*arguments)` outside of `jax.jit`, each operation with the parameters that are chosen for it."""
    with keep_jax_frames(), interpret_directly(), core.set_current_trace(_ReplacingTrace(parameters)):
        return function(*arguments)


class _ReplacingTrace(core.EvalTrace):
    def __init__(self, parameters: ChooseParameters) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._parameters = parameters

    def process_primitive(self, primitive: Any, args: Any, params: Any, /) -> Any:
        chosen = self._parameters(str(primitive.name), params)
        with core.set_current_trace(core.eval_trace):
            return super().process_primitive(primitive, args, chosen)  # type: ignore[no-untyped-call]

    def process_custom_jvp_call(self, primitive: Any, fun: Any, /, *rules_and_tracers: Any, **_: Any) -> Any:
        with core.set_current_trace(self):
            return fun.call_wrapped(*rules_and_tracers[-1])

    process_custom_vjp_call = process_custom_jvp_call


class _TracedError(Exception):
    pass


# A lowering context that lasts until JAX has traced the interpreter that it is about to lower.
class _LoweringContext:
    def __init__(self, avals: Sequence[AbstractValue]) -> None:
        self.avals_in = avals
        self.module_context = SimpleNamespace(platforms=("cpu",))

    @property
    def platforms(self) -> Any:
        raise _TracedError


def interpretation(equation: Equation) -> ClosedJaxpr:
    """Closed jaxpr, without a Pallas call, of what the interpreter that a Pallas call asks for does to its operands.

    JAX makes it only while it lowers the call, so this runs the call's lowering rule up to that point and no further.
    """
    try:
        with interpret_directly():
            rule: Any = mlir._lowerings[equation.primitive].rule
            rule(_LoweringContext([v.aval for v in equation.invars]), *equation.invars, **equation.params)
    except _TracedError as stopped:
        for frame, _ in traceback.walk_tb(stopped.__traceback__):
            if "consts_for_constvars" in (known := frame.f_locals):
                jaxpr = known["jaxpr"]
                return jaxpr if isinstance(jaxpr, ClosedJaxpr) else ClosedJaxpr(jaxpr, known["consts_for_constvars"])
    raise NotImplementedError(f"JAX lowers {equation.primitive.name} in an unknown way")


# The names of narrower floats in `jax.numpy`, such as `jnp.bfloat16`, standing for float64 in one thread.

_NAMES = frozenset({"bfloat16", "float16", "float32", "half", "single"})

_widens: ContextVar[bool] = ContextVar("widens", default=False)
_own_class: type[ModuleType] = type(jnp)


# `jax.numpy` while a context is active; threads outside of it see the module as it is.
class _WideNames(_own_class):  # type: ignore[misc, valid-type]
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__("float64" if name in _NAMES and _widens.get() else name)


_tilings = sys.modules[tpu_info.infer_tiling.__module__]  # another module since JAX 0.12
_jax_tiling_factor = _tilings._get_tiling_factor


# JAX's own never returns for types of more than 32 bits, of which it packs none into a word.
def _tiling_factor(length: int, most: int, packing: int) -> int:
    found: int = _jax_tiling_factor(length, most, max(packing, 1))
    return found


@contextmanager
def widen_float_names() -> Iterator[None]:
    """Has the names of narrower floats in `jax.numpy` stand for float64 in this thread."""
    wide = Replacement(jnp, "__class__", _WideNames)
    tiling = Replacement(_tilings, "_get_tiling_factor", _tiling_factor)
    with setting(_widens, True), replace_attributes(wide, tiling):
        yield
