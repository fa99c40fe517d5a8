"""The row of the corpus: a kernel broken in one place, the same kernel right, and the finding that must come of it."""

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import kerneltest as kt

KERNELS = Path(__file__).parents[2] / "kernels"
Maker = Callable[[bool], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a kernel of `kernels/`.

    Attributes:
      pairing: the `suite.name` of a pairing whose declared inputs the changed kernel is wrong for.
      function: the kernel's name in its module.
      changes: pairs of source text, each of which occurs once, and its replacement.
      numeric: the results are of too little precision, not of the wrong elements.
    """

    pairing: str = ""
    function: str = ""
    changes: tuple[tuple[str, str], ...] = ()
    numeric: bool = False

    @property
    def family(self) -> str:
        return self.pairing.partition(".")[0]

    def sources(self) -> tuple[str, str]:
        """The kernel's module as it is and as the edit makes it."""
        path = KERNELS / f"{self.family}.py"
        changed = source = path.read_text(encoding="utf-8")
        for old, new in self.changes:
            if changed.count(old) != 1:
                raise ValueError(f"{path.name}: {old!r} occurs {changed.count(old)} times")
            changed = changed.replace(old, new)
        return source, changed

    def paired(self, broken: bool) -> kt.Pairing:
        suite, _, name = self.pairing.partition(".")
        pairing = getattr(import_module(f"suites.test_{suite}"), name)
        assert isinstance(pairing, kt.Pairing)
        if not broken:
            return pairing
        module = types.ModuleType(f"broken_{self.family}")
        exec(compile(self.sources()[1], str(KERNELS / f"{self.family}.py"), "exec"), module.__dict__)
        return replace(pairing, kernel=getattr(module, self.function))


@dataclass(frozen=True, slots=True, kw_only=True)
class Twin:
    """One bug.

    Attributes:
      name: the bug, unique in the corpus.
      make: returns the pairing of the broken kernel for True, and that of the right one for False.
      verdicts: the verdict of the broken kernel on each backend, or several with `|` between them; "pass" where the
        backend does not see the bug. Benchmarks alone run a twin without verdicts.
      words: a part of the finding's text: its family, signature and message.
      lines: parts of the source lines that the finding names, one for each place.
      cases: those that run. "first": one structural case, which has one finding. "all": all at quick, and all findings
        have the verdict. "any": until a finding has the verdict and the words. "production": at production lengths.
      right_on: more backends on which the right kernel runs.
      right_is_tested: the right kernel is another twin's, or a suite's.
      edit: the edit that breaks a kernel of `kernels/`.
    """

    name: str
    make: Callable[[bool], kt.Pairing]
    verdicts: Mapping[str, str] = field(default_factory=dict)
    words: str = ""
    lines: tuple[str, ...] = ()
    cases: Literal["first", "all", "any", "production"] = "first"
    right_on: tuple[str, ...] = ()
    right_is_tested: bool = False
    edit: Edit = Edit()

    def broken(self) -> kt.Pairing:
        return self.make(True)

    def right(self) -> kt.Pairing:
        return self.make(False)


def paired(
    make: Maker, shape: Sequence[int], oracle: Callable[..., Any], dtype: str = "float32", domain: Any = None
) -> Callable[[bool], kt.Pairing]:
    """Makes the pairings of kernels of one array of one shape."""

    def pairing(broken: bool) -> kt.Pairing:
        dims = {dim: kt.dim(values=(length,)) for dim, length in zip("mnk", shape, strict=False)}
        x = kt.array(" ".join(dims), dtype, domain=domain)
        return kt.oracle_for(make(broken), x=x, dims=dims)(lambda x: oracle(x))

    return pairing


def edited(
    bug: str,
    pairing: str,
    function: str,
    changes: tuple[tuple[str, str], ...],
    verdict: str = "",
    words: str = "",
    backend: str = "interpret",
    numeric: bool = False,
) -> Twin:
    """A kernel of `kernels/` that an edit breaks."""
    edit = Edit(pairing, function, changes, numeric)
    verdicts = {backend: verdict} if verdict else {}
    return Twin(name=f"{pairing}: {bug}", make=edit.paired, verdicts=verdicts, words=words, cases="any", edit=edit)


def edits(pairing: str, function: str, bugs: Sequence[tuple[str, str, str]], numeric: bool = False) -> list[Twin]:
    """Twins of one kernel, each of one change: the bug, the text and its replacement."""
    return [edited(bug, pairing, function, ((old, new),), numeric=numeric) for bug, old, new in bugs]
