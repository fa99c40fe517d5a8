"""The smallest part of a kernel that still does not lower, as a script of plain Pallas."""

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import jax

from kerneltest.backends.codegen.lower import lower_call
from kerneltest.backends.codegen.plain import script
from kerneltest.backends.codegen.repro_source import NotPlainError
from kerneltest.core.failures import Failure
from kerneltest.core.targets import Target
from kerneltest.trace.equation_steps import Body, Step, body_of, everything, is_literal
from kerneltest.trace.jax_compat.names import equations_being_lowered, line_of_nested
from kerneltest.trace.tracing import Call, Traced
from kerneltest.trace.walk import name_of


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a kernel that fails by itself.

    Attributes:
      script: Python that imports nothing but JAX and Pallas; it ends with JAX's error, and 1, while it fails to lower,
        and with 0 once it lowers. No GPU is needed.
      equations: of the kernel that are kept.
      of: in the kernel, at any depth.
      line: the user's line of the one that fails, as `kernels/x.py:12`, or "".
    """

    script: str
    equations: int
    of: int
    line: str


def cut(traced: Traced, target: Target, failure: Failure, seconds: float = 5.0) -> Cut | None:
    """The smallest part of a kernel's jaxpr that still fails to lower for a target as `failure` says.

    Args:
      traced: the kernel.
      target: that it was lowered for.
      failure: of that.
      seconds: after which the smallest part found so far will do.

    Returns:
      None where the kernel lowers, or fails otherwise; where no part fails so by itself, as where a parameter of the
      whole call is to blame; where it is not one of Triton's kernels; where a part cannot be written in plain Pallas.
    """
    failed = _failing_call(traced, target, failure)
    if failed is None:
        return None
    call, error = failed
    path = equations_being_lowered(error)
    if not path:
        return None
    kernel = body_of(call.equation.params["jaxpr"])
    search = _Search(target, call.grid, _Kind.of(error), time.monotonic() + seconds)
    part = next((part for part in _starts(kernel, path) if search.fails(part)), None)
    if part is None:
        return None
    part = search.shrunk(part)
    text = _header(error, target) + search.script(part, search.shorter(part))
    return Cut(text, _size(part), _size(kernel.steps), line_of_nested(path))


Part = tuple[Step, ...]


def _failing_call(traced: Traced, target: Target, failure: Failure) -> tuple[Call, BaseException] | None:
    """The Pallas call that fails as `failure` says, and what JAX raises for it."""
    if "mosaic_gpu" in traced.dialects:
        return None
    for call in traced.calls:
        try:
            lower_call(call, target)
        except Failure as again:
            same = again.verdict is failure.verdict and _words(str(again)) == _words(str(failure))
            return (call, again.__cause__) if same and again.__cause__ is not None else None
    return None


def _words(text: str) -> frozenset[str]:
    """What an error says, but for numbers, names in quotes, shapes and places in brackets, and the dump after it."""
    said = re.sub(r'"[^"]*"|(?<=<)(?:\d+x)+', "", "\n".join(text.splitlines()[:2]))
    brackets = 1
    while brackets:
        said, brackets = re.subn(r"\([^()]*\)", "", said)
    return frozenset(re.findall(r"[A-Za-z]\w*", said))


@dataclass(frozen=True, slots=True)
class _Kind:
    """What must stay the same in an error: its class, its words, and the primitive that was being lowered."""

    error: type[BaseException]
    words: frozenset[str]
    primitive: str

    @classmethod
    def of(cls, error: BaseException) -> "_Kind":
        path = equations_being_lowered(error)
        return cls(type(error), _words(str(error)), name_of(path[-1]) if path else "")


def _starts(body: Body, path: Sequence[Any]) -> Iterator[Part]:
    """Parts of a kernel that may fail by themselves: an equation, with more and more of what comes before it, then all
    of that for the loop or the conditional around it.

    A rule may lower equations of its own: then the last one that is the kernel's counts.
    """
    places = (_places(body, equation) for equation in reversed(path))
    for steps, at in next(filter(None, places), []):
        yield from _slices(steps, at)


def _places(body: Body, failing: Any) -> list[tuple[Part, int]]:
    """Where an equation stands, and then each equation around it, from the inside out."""
    for at, step in enumerate(body.steps):
        if step.equation is failing:
            return [(body.steps, at)]
        for inner in step.bodies:
            if found := _places(inner, failing):
                return [*found, (body.steps, at)]
    return []


def _slices(steps: Part, at: int) -> Iterator[Part]:
    """A step, and it with the steps that its operands come from, their operands' steps, ..."""
    source = {result: i for i, step in enumerate(steps) for result in step.results if result is not None}
    kept, new = {at}, {at}
    while new:
        yield tuple(steps[i] for i in sorted(kept))
        new = {source[v] for i in new for v in steps[i].operands if not is_literal(v) and v in source} - kept
        kept |= new


@dataclass(frozen=True, slots=True)
class _Search:
    """Tries parts of a kernel, each as the script that would be handed out.

    Attributes:
      target: to lower for.
      grid: of the kernel.
      kind: of the error that counts.
      end: when to stop, by the monotonic clock.
    """

    target: Target
    grid: tuple[int, ...]
    kind: _Kind
    end: float

    def script(self, part: Part, lengths: Mapping[int, int]) -> str:
        """A part as code."""
        return script(part, self.target, self.grid, lengths)

    def fails(self, part: Part, lengths: Mapping[int, int] = MappingProxyType({})) -> bool:
        """Whether a part fails as the kernel does; no, once the time is over."""
        if time.monotonic() > self.end:
            return False
        try:
            exec(compile(self.script(part, lengths), "<cut>", "exec"), {"__name__": "__main__"})
        except NotPlainError:
            return False
        except Exception as error:
            return _Kind.of(error) == self.kind
        return False

    def shrunk(self, part: Part) -> Part:
        """A part without whatever it fails without, at any depth."""
        count = _size(part) // 2
        while count:
            steps = list(everything(part))
            for start in range(0, len(steps), count):
                dropped = steps[start : start + count]
                smaller = next(filter(self.fails, _without_each(part, dropped)), None)
                if smaller is not None:
                    part = smaller
                    break
            else:
                count //= 2
        return part

    def shorter(self, part: Part) -> dict[int, int]:
        """Other lengths with which a part fails, for each the least that is not another's."""
        lengths = {length: length for length in sorted(_lengths(part))}
        for length in lengths:
            others = (other for other in (2, 3, 4, 8, 16, 32, 64) if other < length and other not in lengths.values())
            shorter = (other for other in others if self.fails(part, {**lengths, length: other}))
            lengths[length] = next(shorter, length)
        return lengths


def _size(steps: Part) -> int:
    return sum(1 for _ in everything(steps))


def _without_each(part: Part, dropped: Sequence[Step]) -> Iterator[Part]:
    """A part without some steps: with inputs for what they gave, and with what one of them took instead."""
    smaller = _without(part, {id(step) for step in dropped}, {})
    if smaller:
        yield smaller
    results = [result for step in dropped for result in step.results if result is not None]
    if len(dropped) == len(results) == 1:
        (result,) = results
        alike = [v for v in dropped[0].operands if v.aval.str_short() == result.aval.str_short()]
        yield from (_without(part, {id(dropped[0])}, {result: v}) for v in alike)


def _without(steps: Part, dropped: Collection[int], instead: Mapping[Any, Any]) -> Part:
    """The steps that are not dropped, and what is left in their bodies, with other operands for some."""

    def read(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(v if is_literal(v) else instead.get(v, v) for v in values)

    return tuple(
        replace(
            step,
            operands=read(step.operands),
            bodies=tuple(
                replace(body, steps=_without(body.steps, dropped, instead), results=read(body.results))
                for body in step.bodies
            ),
        )
        for step in steps
        if id(step) not in dropped
    )


def _lengths(part: Part) -> set[int]:
    """Of all axes of all that a part takes and gives, 1 left out."""
    variables = (v for step in everything(part) for v in (*step.operands, *step.results) if v is not None)
    return {n for v in variables for n in getattr(v.aval, "shape", ()) if isinstance(n, int) and n > 1}


def _header(error: BaseException, target: Target) -> str:
    said = [f"JAX {jax.__version__} does not lower this for {target.id}:"]
    said += f"{type(error).__name__}: {error}".splitlines()[:2]
    said += ["It needs no GPU. It ends with that error and exit code 1, or with 0 once it lowers."]
    return "".join(f"# {ascii(line)[1:-1]}\n" for line in said)
