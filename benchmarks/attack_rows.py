"""The rows of `benchmarks/attacks.py`: what each attack writes, which commands it runs, and what must hold."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
QUICK = ("--kt-depth", "quick", "--kt-backends", "interpret", "--kt-minimize", "0")
CLASSES = ("identity", "retries", "vacuous", "mistakes", "exits", "waiting", "text", "records")
SUITE = """
import os, sys, time
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
import kerneltest as kt
{head}

def scale(x{parameters}):
    def body(x_ref, o_ref):
        o_ref[...] = {kernel}
    {before}
    y = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype){call})(x)
    return {result}

@kt.oracle_for(scale, x=kt.array("n", {dtype}{array}), dims=dict(n=kt.dim(values={lengths})){declared})
{define} oracle(x):
    {oracle}
"""
WORDS = {
    "head": "", "parameters": "", "kernel": "x_ref[...] * 2", "before": "", "call": "", "result": "y",
    "dtype": "'float32'", "array": "", "lengths": "(3,)", "declared": "", "define": "def", "oracle": "return x * 2",
}  # fmt: skip
NEVER = ("INTERNALERROR", "Traceback (most recent call last)", "kerneltest itself failed", "kerneltest raised")


def suite(**words: str) -> str:
    """The text of a test file with one pairing; the kernel and the oracle double, unless the words say otherwise."""
    return SUITE.format(**{**WORDS, **words})


@dataclass(frozen=True, eq=False)
class Pairing:
    """A test file that shares a session with the other files of its class.

    Attributes:
      words: those of `suite`; or the whole file, as `text`.
      ends: verdicts of which at least one must be recorded for the file, and no other but `pass`; with none, the output
        must say that the file failed.
      says: a pattern that the session's output must have; `FILE` is the file's name.
      files: further files beside it.
    """

    kind: str
    name: str
    words: Mapping[str, str]
    ends: str = ""
    says: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Change:
    """A pairing that is green, and wrong after a change, so that the second run of the same session must be red.

    `HELPER` in a text is a name for a module that no other row has.
    """

    name: str
    words: Mapping[str, str]
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)  # words of the suite
    kind: str = "identity"


@dataclass(frozen=True, eq=False)
class Command:
    """Commands in a folder of their own, the last of which is judged.

    Attributes:
      files: by path, before the first command.
      commands: words of each; of pytest without its plugins and the options in `QUICK`.
      status: those that the last one may end with.
      says: a pattern that its output must have.
      damage: what happens to the folder before the last command.
      never: patterns that the last one's output must not have.
      safe: of files that it writes, those without control characters and live HTML.
      limit: seconds for the last command, on a machine without other load.
      makes: a file that it must not make.
      reuses: "red" or "green", if the folder is a copy of one in which such a run left `out`.
    """

    kind: str
    name: str
    files: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]
    status: tuple[int, ...]
    says: str = ""
    damage: Callable[[Path], object] = lambda folder: None
    never: tuple[str, ...] = NEVER
    safe: tuple[str, ...] = ()
    limit: float = 60.0
    reuses: str = ""
    makes: str = ""


# Identity: the second run must be red.

_TWO, _THREE = {"HELPER.py": "FACTOR = 2.0\n"}, {"HELPER.py": "FACTOR = 3.0\n"}


def _module(
    name: str, text: str, kernel: str = "x_ref[...] * HELPER.{use}", use: str = "FACTOR", **words: str
) -> Change:
    """A change of a module in which `{}` is 2.0 at first, then 3.0."""
    words = {"head": "import HELPER", "kernel": kernel.format(use=use), **words}
    return Change(name, words, {"HELPER.py": text.replace("{}", "2.0")}, {"HELPER.py": text.replace("{}", "3.0")})


CHANGES = (
    _module("a constant", "FACTOR = {}"),
    _module("a keyword default", "def factor(*, f={}): return f", use="factor()"),
    _module("a closure", "def make():\n    f = {}\n    return lambda: f\nfactor = make()", use="factor()"),
    _module("a class attribute", "class C:\n    F = {}\n", use="C.F"),
    _module("a slot", "class C:\n    __slots__ = ('f',)\nc = C()\nc.f = {}", use="c.f"),
    _module("a property", "class C:\n    f = property(lambda self: {})\nc = C()", use="c.f"),
    _module("a metaclass", "class M(type):\n    F = {}\nclass C(metaclass=M): pass", use="C.F"),
    _module("a module's __getattr__", "def __getattr__(name): return {}", use="anything"),
    _module("a partial", "from functools import partial\nfactor = partial(float, {})", use="factor()"),
    _module("a cached function", "from functools import cache\n@cache\ndef factor(): return {}", use="factor()"),
    _module("a context variable", "from contextvars import ContextVar\nv = ContextVar('v', default={})", use="v.get()"),
    _module("a thread's value", "import threading\nt = threading.local()\nt.f = {}", use="t.f"),
    _module("a list that a function fills", "LIST = []\nLIST.append({})", use="LIST[0]"),
    _module("an enum", "import enum\nclass E(enum.Enum):\n    F = {}", use="E.F.value"),
    _module("a dataclass", "from dataclasses import dataclass\n@dataclass\nclass C:\n    f: float = {}", use="C().f"),
    _module("a generator", "def numbers():\n    yield {}", use="numbers().__next__()"),
    _module("an evaluated text", "factor = eval('lambda: {}')", use="factor()"),
    _module("a comprehension", "def factor(): return [f for f in ({},)][0]", use="factor()"),
    _module("a call operator", "class C:\n    def __call__(self): return {}\nc = C()", use="c()"),
    _module("a base class", "class B:\n    def f(self): return {}\nclass C(B): pass", use="C().f()"),
    _module("a dictionary's entry", "D = {'f': {}}", use="D['f']"),
    _module("a number in NumPy's dtype", "import numpy as np\nF = np.float32({})", use="F"),
    _module("a wrapped function", "from functools import wraps\ndef d(g):\n    @wraps(g)\n    def h(): return {}\n"
            "    return h\n@d\ndef factor(): return 2.0", use="factor()"),
    _module("an annotation", "class C:\n    a: {}\n", use="C.__annotations__['a']"),
    _module("a docstring", "def f():\n    '{}'\n", use="f.__doc__ and float(HELPER.f.__doc__)",
            kernel="x_ref[...] * float(HELPER.f.__doc__)"),
    _module("the oracle's helper", "FACTOR = {}", kernel="x_ref[...] * 2", oracle="return x * HELPER.FACTOR"),
    _module("the oracle's decorator", "def d(g): return lambda x: g(x) * {} / 2", kernel="x_ref[...] * 2",
            oracle="return HELPER.d(lambda x: x * 2)(x)"),
    _module("a callback", "FACTOR = {}", kernel="x_ref[...] * 1", result="jax.pure_callback(lambda v: v * np.float32("
            "HELPER.FACTOR), jax.ShapeDtypeStruct(y.shape, y.dtype), y)"),
    _module("the bound of a loop", "FACTOR = {}", kernel="lax.fori_loop(0, int(HELPER.FACTOR), lambda i, s: s + "
            "x_ref[...], jnp.zeros(3, 'float32'))"),
    _module("a condition in the kernel", "FACTOR = {}", kernel="x_ref[...] * (2 if HELPER.FACTOR == 2 else 1)"),
    Change("a data file of the kernel", {"head": "import pathlib\nF = "
           "float(pathlib.Path(__file__).with_name('HELPER.txt').read_text())", "kernel": "x_ref[...] * F"},
               {"HELPER.txt": "2.0"}, {"HELPER.txt": "3.0"}),
    Change("a file that the oracle reads at each call", {"head": "import pathlib\nP = pathlib.Path(__file__).with_name("
           "'HELPER.txt')", "oracle": "return x * float(P.read_text())"}, {"HELPER.txt": "2.0"}, {"HELPER.txt": "3.0"}),
    Change("a module of a module", {"head": "import HELPER", "kernel": "x_ref[...] * HELPER.F"},
           {"HELPER.py": "from HELPER_deep import F", "HELPER_deep.py": "F = 2.0"}, {"HELPER_deep.py": "F = 3.0"}),
    Change("a package's data", {"head": "import importlib.resources, HELPER\nF = "
           "float(importlib.resources.files(HELPER).joinpath('f.txt').read_text())", "kernel": "x_ref[...] * F"},
           {"HELPER/__init__.py": "", "HELPER/f.txt": "2.0"}, {"HELPER/f.txt": "3.0"}),
    Change("a domain", {"kernel": "jnp.abs(x_ref[...]) * 2", "array": ", domain=(0, 9)"}, changed={"array": ""}),
    Change("a length", {"result": "y * (2 if x.shape[0] == 3 else 3)", "kernel": "x_ref[...]"},
           changed={"lengths": "(3, 4)"}),
    Change("a tolerance", {"kernel": "x_ref[...] * 2.01", "declared": ", tolerance=kt.tolerance.relative(0.1, 'none')"},
           changed={"declared": ""}),
    Change("returns=", {"declared": ", returns='float32'"}, changed={"declared": ", returns='bfloat16'"}),
    Change("all_masked is not declared, signed zeros are",
           {"kernel": "jnp.where(x_ref[...] == 0, 0.0, x_ref[...] * 2)"},
           changed={"declared": ", signed_zeros=True"}),
    Change("the exception of rejects=", {"before": "if x.shape[0] == 7: raise ValueError('no')", "declared":
           ", rejects=[kt.rejects('seven', dims={'n': 7}, raises=ValueError, match='no')]"},
           changed={"declared": ", rejects=[kt.rejects('seven', dims={'n': 7}, raises=TypeError, match='no')]"}),
    Change("the pattern of rejects=", {"before": "if x.shape[0] == 7: raise ValueError('no')", "declared":
           ", rejects=[kt.rejects('seven', dims={'n': 7}, raises=ValueError, match='no')]"},
           changed={"declared": ", rejects=[kt.rejects('seven', dims={'n': 7}, raises=ValueError, match='yes')]"}),
)  # fmt: skip

# A kernel or an oracle that errs in some of its calls.

_CALLS = "CALLS = [0]\ndef host(v):\n    CALLS[0] += 1\n    {}\n    return np.asarray(v) * np.float32({})\n"
_CALLBACK = "jax.pure_callback(host, jax.ShapeDtypeStruct(y.shape, y.dtype), y)"


def _host(name: str, factor: str, errs: str = "", call: str = _CALLBACK, **words: str) -> Pairing:
    head = _CALLS.format(errs or "pass", factor)
    return Pairing("retries", name, {"head": head, "kernel": "x_ref[...] * 1", "result": call, **words}, "*")


RETRIES = (
    *(_host(f"a callback is wrong in call {n}", f"(3 if CALLS[0] == {n} else 2)") for n in (1, 2, 5, 11)),
    *(_host(f"a callback raises in call {n}", "2", f"if CALLS[0] == {n}: raise ValueError('once')") for n in (1, 3, 8)),
    _host("a callback is wrong in each second call", "(2 + CALLS[0] % 2)"),
    _host("a callback is wrong after the tenth call", "(2 if CALLS[0] < 10 else 3)"),
    _host("a callback adds what it kept", "2 + np.float32(CALLS[0] > 6)"),
    _host("a callback returns NaN once", "(np.nan if CALLS[0] == 4 else 2)"),
    _host("an io_callback is wrong in call 3", "(3 if CALLS[0] == 3 else 2)",
          call="jax.experimental.io_callback(host, jax.ShapeDtypeStruct(y.shape, y.dtype), y)"),
    Pairing("retries", "a trace is wrong once", {"head": "N = [0]", "before": "N[0] += 1",
            "kernel": "x_ref[...] * (3 if N[0] == 2 else 2)"}, "*"),
    Pairing("retries", "the oracle raises in its second call", {"head": "N = [0]", "oracle": "N[0] += 1\n    if N[0] "
            "== 2: raise ValueError('once')\n    return x * 2"}, "oracle_error"),
    Pairing("retries", "the oracle raises in its ninth call", {"head": "N = [0]", "oracle": "N[0] += 1\n    if N[0] "
            "== 9: raise ValueError('once')\n    return x * 2"}, "oracle_error"),
    Pairing("retries", "the oracle changes in its fourth call", {"head": "N = [0]", "oracle": "N[0] += 1\n    return "
            "x * (2 if N[0] != 4 else 3)"}, "*"),
    Pairing("retries", "the oracle is wrong in its twelfth call", {"head": "N = [0]", "oracle": "N[0] += 1\n    "
            "return x * (2 if N[0] != 12 else 3)"}, "oracle_error"),
    Pairing("retries", "the oracle raises once on tracked arrays", {"head": "N = [0]", "oracle": "N[0] += not "
            "isinstance(x, np.ndarray)\n    if N[0] == 2: N[0] += 1; raise ValueError('once')\n    return x * 2"},
            "oracle_error"),
    Pairing("retries", "the tracing raises once", {"head": "N = [0]", "before": "N[0] += 1\n    if N[0] == 3: raise "
            "ValueError('once')"}, "*"),
)  # fmt: skip

# A comparison that cannot fail.


def _vacuous(name: str, says: str = "", **words: str) -> Pairing:
    return Pairing("vacuous", name, words, says=says)


VACUOUS = (
    _vacuous("nothing is defined", oracle="return kt.defined(2 * x, where=np.zeros(x.shape, bool))"),
    _vacuous("nothing is defined, of a wrong kernel", kernel="x_ref[...] * 3",
             oracle="return kt.defined(2 * x, where=np.zeros(x.shape, bool))"),
    _vacuous("NaN is expected everywhere", kernel="x_ref[...] * jnp.nan", oracle="return x * np.nan"),
    _vacuous("infinity is expected everywhere", kernel="x_ref[...] * 0 + jnp.inf",
             oracle="return np.full(x.shape, np.inf)"),
    _vacuous("zero is expected everywhere", kernel="x_ref[...] * 0", oracle="return x * 0", array=", domain=(0, 9)"),
    _vacuous("a domain of zero", array=", domain=(0, 0)"),
    _vacuous("no Pallas call", before="return x * 2"),
    _vacuous("a Pallas call whose result is not used", kernel="x_ref[...]", result="x * 2"),
    _vacuous("a tolerance without an end", kernel="x_ref[...] * 3", declared=", tolerance=kt.tolerance.relative("
             "float('inf'), 'none')"),
    _vacuous("an absolute tolerance of 1e30", kernel="x_ref[...] * 3",
             declared=", tolerance=kt.tolerance.absolute(1e30, 'none')"),
    _vacuous("a tolerance of NaN", kernel="x_ref[...] * 3",
             declared=", tolerance=kt.tolerance.absolute(float('nan'), 'none')"),
    _vacuous("a where= that no call meets", declared=", where=lambda n: n > 99"),
    _vacuous("lengths of zero", lengths="(0,)"),
    _vacuous("no dtypes", dtype="()"),
    _vacuous("a backend that does not exist", declared=", backends=('interpet',)"),
    _vacuous("an oracle that returns its own kernel's answer",
             oracle="return np.asarray(scale(jnp.asarray(x, 'float32')))",
             kernel="x_ref[...] * 3"),
    _vacuous("an xfail of a right kernel", declared=", xfail=[kt.xfail(reason='later')]"),
    _vacuous("no parentheses", head="@kt.oracle_for\ndef lost(x): return x"),
    _vacuous("no decorator", head="kt.oracle_for(np.sin, x=kt.array('n', 'float32'))"),
    _vacuous("a mark xfail", head="pytestmark = pytest.mark.xfail", kernel="x_ref[...] * 3"),
    _vacuous("a mark xfail that does not run", head="pytestmark = pytest.mark.xfail(run=False)",
             kernel="x_ref[...] * 3"),
    _vacuous("an oracle of another shape", oracle="return x[:1] * 2"),
    _vacuous("an oracle without outputs", oracle="return ()"),
    _vacuous("an oracle of None", oracle="return None"),
    _vacuous("an oracle of text", oracle="return x.astype(str)"),
    _vacuous("an oracle of objects that equal anything", head="class Any:\n    __eq__ = lambda s, o: True\n    "
             "__array__ = lambda s, *a, **k: np.full(3, np.nan)", oracle="return Any()"),
    _vacuous("an oracle of a masked array", kernel="x_ref[...] * 3", oracle="return np.ma.masked_all(x.shape)"),
)  # fmt: skip

# What the user did, and what a kernel may not do: a finding or an error of the user, never one of kerneltest.


def _mistake(name: str, ends: str = "*", **words: str) -> Pairing:
    return Pairing("mistakes", name, words, ends)


MISTAKES = (
    _mistake("an oracle keeps a work buffer", "pass", head="K = {}", oracle="w = K.setdefault(x.shape, "
             "np.empty(x.shape))\n    w[...] = x\n    return w * 2.0"),
    _mistake("an oracle keeps an array in a class", head="class K: a = None", oracle="K.a = np.zeros(x.shape) if K.a "
             "is None else K.a\n    K.a[...] = x\n    return K.a * 2.0"),
    _mistake("an oracle writes to its argument", oracle="x *= 2\n    return x"),
    _mistake("an oracle branches on values", "pass", oracle="return x * 2 if x[0] > 0.5 else x + x"),
    _mistake("an oracle raises", "oracle_error", oracle="raise ValueError('no')"),
    _mistake("an oracle raises a group", "oracle_error", oracle="raise ExceptionGroup('g', [ValueError('no')])"),
    _mistake("an oracle raises GeneratorExit", "oracle_error", oracle="raise GeneratorExit"),
    _mistake("an oracle raises StopIteration", "oracle_error", oracle="raise StopIteration"),
    _mistake("an oracle raises an error without text", "oracle_error", head="class E(Exception):\n    __str__ = None",
             oracle="raise E"),
    _mistake("an oracle raises an error whose text raises", "oracle_error", head="class E(Exception):\n    def "
             "__str__(self): raise RuntimeError('again')\n    __repr__ = __str__", oracle="raise E"),
    _mistake("an oracle recurses", "oracle_error", head="def f(x): return f(x)", oracle="return f(x)"),
    _mistake("an oracle is a generator", "oracle_error", oracle="yield x"),
    _mistake("an oracle is asynchronous", define="async def"),
    _mistake("an oracle prints and warns", "pass", oracle="import warnings\n    print('x' * 99)\n    "
             "warnings.warn('w')\n    return x * 2"),
    _mistake("an oracle sets NumPy to raise", "pass", oracle="np.seterr(all='raise')\n    return x * 2"),
    _mistake("an oracle asks for too much memory", "oracle_error", oracle="return np.zeros(2**60) + x[0]"),
    _mistake("a kernel raises", "runtime_error", before="raise ValueError('no')"),
    _mistake("a kernel raises GeneratorExit", "runtime_error", before="raise GeneratorExit"),
    _mistake("a kernel raises CancelledError", "runtime_error", before="import asyncio; raise asyncio.CancelledError"),
    _mistake("an oracle raises a BaseException", "oracle_error", oracle="raise BaseException('no')"),
    _mistake("a condition exits", declared=", where=lambda n: 'oracle' not in globals() or sys.exit(0)"),
    _mistake("a kernel raises StopIteration", "runtime_error", before="raise StopIteration"),
    _mistake("a kernel recurses", "runtime_error", head="def f(x): return f(x)", before="f(x)"),
    _mistake("a kernel returns nothing", result="None"),
    _mistake("a kernel returns a text", result="'text'"),
    _mistake("a kernel returns a typed key", result="jax.random.key(0)"),
    _mistake("a kernel returns a function", result="lambda: y"),
    _mistake("a negative grid", call=", grid=(-1,)"),
    _mistake("a grid of text", call=", grid=('a',)"),
    _mistake("a grid of zero", call=", grid=(0,)"),
    _mistake("a block of zero", call=", grid=(1,), out_specs=pl.BlockSpec((0,), lambda i: (i,))"),
    _mistake("an index map of text", call=", grid=(1,), out_specs=pl.BlockSpec((3,), lambda i: ('a',))"),
    _mistake("an index map that raises", call=", grid=(1,), out_specs=pl.BlockSpec((3,), lambda i: 1 / 0)"),
    _mistake("a kernel asserts a length", before="assert x.shape[0] == 4, 'four'"),
    _mistake("a kernel uses a tracer as a bool", kernel="x_ref[...] * 2 if x_ref[0] > 0 else x_ref[...]"),
    _mistake("a kernel keeps a tracer", head="K = []", before="K.append(x)", result="y + K[0] * 0"),
    _mistake("a kernel changes its argument's dtype", result="y.astype('float16')"),
    _mistake("a kernel changes JAX's configuration", "pass", before="jax.config.update('jax_enable_x64', False)"),
    _mistake("a kernel of complex numbers", "pass", kernel="jnp.real(x_ref[...] * (2 + 1j))"),
    _mistake("a kernel reads beyond its input", kernel="x_ref[pl.ds(5, 3)] * 2"),
    _mistake("a kernel deletes its module", "pass", before="sys.modules.pop(__name__, None)"),
)  # fmt: skip
PAIRINGS = (*RETRIES, *VACUOUS, *MISTAKES)

# Exits: the status of a process that ends another way is no success.

_EXIT = "if os.path.exists('armed'): os._exit(0)"
_ARM = {"armed": ""}
_FILE = "test_it.py"
PYTEST = ("pytest", _FILE)


def _touch(folder: Path) -> None:
    (folder / "armed").write_text("", encoding="utf-8")


def _exits(name: str, command: tuple[str, ...] = PYTEST, status: tuple[int, ...] = (1, 2, 3), **words: str) -> Command:
    return Command("exits", name, {_FILE: suite(**words)}, (command,), status, never=())


RED = {_FILE: suite(kernel="x_ref[...] * 3")}
GREEN = {_FILE: suite()}
_ATEXIT = "import atexit\natexit.register(lambda: os._exit(0))"


def _conftest(name: str, conftest: str) -> Command:
    return Command(
        "exits", name, {**RED, "conftest.py": f"import os, sys, pytest\n{conftest}"}, (PYTEST,), (1, 2, 3, 4, 5)
    )


_MUTATE = ("kerneltest", "mutate", _FILE, "--backends", "interpret")
EXITS = (
    _exits("os._exit(0) in a kernel", before="os._exit(0)"),
    _exits("os._exit(0) in an oracle", oracle="os._exit(0)"),
    _exits("os._exit(0) in a module", head="os._exit(0)"),
    _exits("os._exit(0) in a callback", result="jax.pure_callback(lambda v: os._exit(0), y, y)"),
    _exits("os._exit(0) in a thread", head="import threading", before="t = threading.Thread(target=os._exit, "
           "args=(0,)); t.start(); t.join()"),
    _exits("os._exit(0) at exit", head=_ATEXIT, kernel="x_ref[...] * 3"),
    _exits("sys.exit(0) in a kernel", before="sys.exit(0)"),
    _exits("sys.exit(0) in an oracle", oracle="sys.exit(0)"),
    _exits("sys.exit(0) in a module", head="sys.exit(0)"),
    _exits("pytest.exit(returncode=0) in an oracle", oracle="pytest.exit('done', returncode=0)"),
    _exits("pytest.skip in an oracle", oracle="pytest.skip('later')", kernel="x_ref[...] * 3"),
    _exits("pytest.xfail in an oracle", oracle="pytest.xfail('later')", kernel="x_ref[...] * 3"),
    _exits("os.execv in a kernel", before="os.execv('/bin/true', ['true'])"),
    _exits("os.execlp in an oracle", oracle="os.execlp('true', 'true')"),
    _exits("posix._exit(0) in a kernel", head="import posix", before="posix._exit(0)"),
    _exits("C code that exits (not promised)", head="import ctypes", before="ctypes.CDLL(None)._exit(0)",
           status=(0, 1, 2, 3)),
    _exits("SIGTERM in a kernel", before="os.kill(os.getpid(), 15)", status=(1, 2, 3, -15, 143)),
    _exits("KeyboardInterrupt in an oracle", oracle="raise KeyboardInterrupt"),
    _conftest("a conftest passes each report", "@pytest.hookimpl(wrapper=True)\ndef pytest_runtest_makereport():\n"
              "    report = yield\n    report.outcome = 'passed'\n    return report"),
    _conftest("a conftest marks all xfail", "def pytest_collection_modifyitems(items):\n"
              "    [i.add_marker(pytest.mark.xfail) for i in items]"),
    _conftest("a conftest sets the status", "@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(session):\n"
              "    session.exitstatus = 0"),
    Command("exits", "a conftest skips all", {**RED, "conftest.py": "import pytest\ndef pytest_runtest_setup(item):\n"
            "    pytest.skip('later')"}, (PYTEST,), (0, 1), "nothing was compared, since pytest skipped everything"),
    _conftest("a conftest deselects all", "def pytest_collection_modifyitems(config, items):\n    items[:] = []"),
    _conftest("a conftest replaces the test", "def pytest_pyfunc_call(): return True\ndef pytest_runtest_call(item): "
              "pass\ndef pytest_runtest_protocol(item, nextitem): return True"),
    Command("exits", "a fork may exit", {_FILE: suite(before="pid = os.fork()\n    if not pid: os._exit(0)\n    "
            "os.waitpid(pid, 0)")}, (PYTEST,), (0,)),
    *(Command("exits", f"os._exit(0) under {words[1]}", {_FILE: suite(before=_EXIT)}, (words,), (1, 2, 3),
              damage=_touch)
      for words in (_MUTATE, ("kerneltest", "coverage", _FILE), ("kerneltest", "run", _FILE, *QUICK))),
    Command("exits", "os._exit(0) under repro", {_FILE: suite(before=_EXIT, kernel="x_ref[...] * 3")},
            ((*PYTEST, "--kt-report", "out"), ("kerneltest", "repro", "out", "CASE")), (1, 2, 3), damage=_touch),
    Command("exits", "os._exit(0) under the reproduction", {_FILE: suite(before=_EXIT, kernel="x_ref[...] * 3")},
            ((*PYTEST, "--kt-report", "out"), ("SCRIPT",)), (1, 2, 3), damage=_touch, never=()),
    *(Command("exits", f"mutate --least {least}", GREEN, ((*_MUTATE, "--least", least),), (2,))
      for least in ("nan", "inf", "-1", "2", "a")),
    Command("exits", "mutate --least of nothing", {_FILE: suite(before="return x * 2")},
            ((*_MUTATE, "--least", "0.5"),), (1, 2)),
    *(Command("exits", f"{words[0]} of a missing file", {}, (("kerneltest", *words),), (2, 4)) for words in (
        ("mutate", "no.py"), ("coverage", "no.py"), ("summary", "no"), ("diff", "no", "no"), ("merge", "no", "-o", "x"),
        ("report", "no"), ("repro", "no", "no"), ("audit", "no"), ("run", "no.py"), ("watch", "no.py"))),
)  # fmt: skip

# Waiting: the commands end.

_CYCLE = "e = ValueError('one'); f = ValueError('two'); e.__cause__ = f; f.__cause__ = e"
_FIFO = "report.fifo"


def _fifo(name: str) -> Callable[[Path], None]:
    return lambda folder: os.mkfifo(folder / name)


_LIMITED = (*PYTEST, "--kt-timeout", "1", "--kt-budget", "5")


def _waits(name: str, status: tuple[int, ...] = (1, 2), command: tuple[str, ...] = _LIMITED, **words: str) -> Command:
    return Command("waiting", name, {_FILE: suite(**words)}, (command,), status, limit=80)


_LOOP = "lax.while_loop(lambda v: v[0] > -9e9, lambda v: v, x_ref[...])"
_COUNT = "lax.fori_loop(0, 2**31 - 2, lambda i, v: v + 0, x_ref[...])"
_ENDLESS = "class Endless:\n    def __str__(self):\n        while True: pass\n"
_SLEEPS_LATER = "if os.path.exists('armed'): time.sleep(9999)\n    "
_DOWN = "lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] + x_ref[...]), (0, x_ref[...] * 0))[1]"
WAITING = (
    _waits("a kernel loops in Python", before="while True: pass"),
    _waits("a kernel sleeps", before="time.sleep(9999)"),
    _waits("a kernel computes in JAX for ever", before="while True: jnp.sin(1.0)"),
    _waits("a kernel waits for an event", head="import threading", before="threading.Event().wait()"),
    _waits("a kernel keeps the interpreter", before="sum(iter(int, 1))"),
    _waits("a kernel keeps what ends it", (1, 2), before="while True:\n        try: time.sleep(1)\n        except "
           "BaseException: pass"),
    _waits("a kernel raises a text that never ends", head=f"{_ENDLESS}class E(Endless, Exception): pass",
           before="raise E"),
    _waits("the text of a static argument never ends", head=_ENDLESS, parameters=", mode", before="str(mode)",
           declared=", mode=kt.static(end=Endless())"),
    _waits("a condition never ends, once it is planned", head="asked = []\ndef condition(n):\n    asked.append(n)\n"
           "    while len(asked) > 1: pass\n    return True", declared=", where=condition"),
    _waits("a while_loop never ends", kernel=_LOOP),
    _waits("a loop of 2^31 steps", kernel=_COUNT),
    _waits("an oracle loops", oracle="while True: pass"),
    _waits("an oracle sleeps", oracle="time.sleep(9999)"),
    _waits("an oracle waits for a lock", head="import threading\nlock = threading.Lock()", oracle="lock.acquire(); "
           "lock.acquire()\n    return x * 2"),
    _waits("an oracle's generator never ends", oracle="return sum(x for _ in iter(int, 1))"),
    _waits("an oracle reads the terminal", (0, 1), oracle="try: input()\n    except (EOFError, OSError): pass\n    "
           "return x * 2"),
    _waits("a callback sleeps", result="jax.pure_callback(lambda v: time.sleep(9999), y, y)"),
    _waits("a text that never ends", head="class E(Exception):\n    def __str__(self):\n        while True: pass",
           oracle="raise E"),
    _waits("a cyclic cause in a kernel", before=f"{_CYCLE}; raise e"),
    _waits("a cyclic cause in an oracle", oracle=f"{_CYCLE}; raise e"),
    _waits("a cyclic context in an oracle", oracle=f"{_CYCLE.replace('cause', 'context')}; raise e"),
    _waits("a cyclic cause in a module", head=f"{_CYCLE}; raise e"),
    _waits("a cyclic cause in a condition", declared=", where=condition",
           head=f"def condition(n):\n    {_CYCLE}\n    raise e"),
    _waits("a group that holds itself", oracle="e = ExceptionGroup('g', [ValueError('x')]); e.__cause__ = e; raise e"),
    _waits("a grid of 2^31 programs", call=", grid=(2**31 - 1,)"),
    _waits("mutants that never end", (0, 1), (*_MUTATE, "--timeout", "1"), kernel=_DOWN),
    _waits("coverage of a long loop", (0, 1, 2),
           ("kerneltest", "coverage", _FILE, "--depth", "quick", "--timeout", "1"), kernel=_COUNT),
    *(_waits(f"{words[0]} of a kernel that sleeps", (0, 1, 2), ("kerneltest", words[0], *words[1:]),
             before="time.sleep(9999)")
      for words in (("mutate", _FILE, "--timeout", "1"), ("coverage", _FILE, "--timeout", "1"),
                    ("audit", ".", "--limit", "5"))),
    Command("waiting", "kt.check of a kernel that sleeps", {_FILE: suite(before="time.sleep(9999)"), "checked.py":
            "import kerneltest as kt, test_it\nresult = kt.check(test_it.oracle, timeout=1)\nprint(result)\n"
            "raise SystemExit(not result.ok)"}, (("checked",),), (1,), "hang on interpret: no answer", limit=80),
    Command("waiting", "repro of an oracle that sleeps", {_FILE: suite(kernel="x_ref[...] * 3", oracle=
            f"{_SLEEPS_LATER}return x * 2")}, ((*PYTEST, "--kt-report", "out"), ("kerneltest", "repro", "out",
            "--timeout", "1", "CASE")), (1,), "hang on interpret", damage=_touch, limit=80),
    _waits("watch of a missing file", (2, 4), ("kerneltest", "watch", "no.py")),
    Command("waiting", "a name of 200,000 characters", {_FILE: suite(head=f"LONG = {'x' * 200_000!r}", declared=
            ", rejects=[kt.rejects(LONG, raises=ValueError)]")}, (PYTEST,), (0, 1, 2)),
)  # fmt: skip

# Reports of runs, damaged or hostile, as every reader gets them.

_READERS = {
    "summary": ("kerneltest", "summary", "out", "--format", "github", "--markdown", "page.md", "--sarif", "log.json"),
    "report": ("kerneltest", "report", "out", "-o", "page.html"),
    "diff": ("kerneltest", "diff", "out", "out", "--markdown", "page.md"),
    "merge": ("kerneltest", "merge", "out", "-o", "merged"),
    "repro": ("kerneltest", "repro", "out", "CASE"),
    "resume": (*PYTEST, "--kt-report", "out", "--kt-resume"),
}
RECORDS_FILE = "records-main.jsonl"


def _bytes(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "out" / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def _replace(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "out" / name
        path.unlink()
        make(path)

    return damage


def _record(**values: object) -> Callable[[Path], object]:
    """Sets fields of each record."""

    def change(data: bytes) -> bytes:
        lines = [json.loads(line) for line in data.splitlines()]
        for line in lines:
            line["record"].update(values)
        return "".join(f"{json.dumps(line)}\n" for line in lines).encode("utf-8", "surrogatepass")

    return _bytes(RECORDS_FILE, change)


def _without_red(data: bytes) -> bytes:
    return b"".join(line for line in data.splitlines(keepends=True) if b'"mismatch"' not in line)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "records cut off": _bytes(RECORDS_FILE, lambda data: data[: len(data) // 2]),
    "records are empty": _bytes(RECORDS_FILE, lambda data: b""),
    "findings cut out": _bytes(RECORDS_FILE, _without_red),
    "findings turned into passes of nothing": _record(verdict="pass", compared=0, detail=None, message=""),
    "a garbled line": _bytes(RECORDS_FILE, lambda data: data.replace(b'"record"', b'"recor\x00', 1)),
    "invalid UTF-8": _bytes(RECORDS_FILE, lambda data: data.replace(b'"record"', b'"\xff\xfe"', 1)),
    "another schema": _bytes(RECORDS_FILE, lambda data: data.replace(b'"schema":12', b'"schema":999')),
    "brackets without an end": _bytes(RECORDS_FILE, lambda data: b"[" * 200_000),
    "a number of 5,000 digits": _bytes(
        RECORDS_FILE, lambda data: data.replace(b'"wrong":0', b'"wrong":' + b"9" * 5000)
    ),
    "a record of another type": _record(dims="text"),
    "negative counts": _record(compared=-5, wrong=-5),
    "records twice": _bytes(RECORDS_FILE, lambda data: data + data),
    "records are a folder": _replace(RECORDS_FILE, Path.mkdir),
    "records are a pipe": _replace(RECORDS_FILE, os.mkfifo),
    "records are a device": _replace(RECORDS_FILE, lambda path: path.symlink_to("/dev/zero")),
    "records link to themselves": _replace(RECORDS_FILE, lambda path: path.symlink_to(path)),
    "no plan": _replace("plan.json", lambda path: None),
    "an empty plan": _bytes("plan.json", lambda data: b'{"schema":12,"plan":{}}'),
    "no end": _replace("end.json", lambda path: None),
    "the end of another run": _bytes("end.json", lambda data: data.replace(b'"run":"', b'"run":"a')),
    "an end with fewer records": _bytes("end.json", lambda data: re.sub(rb'"records":\d+', b'"records":1', data)),
}
RECORDS = (
    *(Command("records", f"{damage}, {reader}", {}, (_READERS[reader],), (1, 2, 4), damage=DAMAGES[damage], limit=40,
              reuses="red" if damage.startswith("findings") else "green") for damage, reader in (
        *((damage, "summary") for damage in DAMAGES),
        *((damage, "merge") for damage in list(DAMAGES)[:7]),
        *((damage, "report") for damage in ("records cut off", "a garbled line", "records are a pipe", "no plan")),
        *((damage, "diff") for damage in ("records are a device", "brackets without an end")),
        *((damage, "resume") for damage in ("findings cut out", "invalid UTF-8", "no plan")),
    )),
    Command("records", "records cut off, resume", {}, (_READERS["resume"],), (0,), r"(\d+) of \1 cells pass",
            damage=DAMAGES["records cut off"], reuses="green"),
    *(Command("records", f"{words[1]} to a full disk", {}, (words,), (1, 2), reuses="red") for words in (
        ("kerneltest", "summary", "out", "--markdown", "/dev/full"),
        ("kerneltest", "summary", "out", "--sarif", "/dev/full"),
        ("kerneltest", "report", "out", "-o", "/dev/full"),
        (*_MUTATE, "--json", "/dev/full"),
    )),
)  # fmt: skip

# Foreign text on its way out, and data that would run.

_HOSTILE = (
    "\x1b[31m\x1b]0;t\x07\x9b2J\u202e\x08</script><img src=x onerror=alert(1)>\n```\n::error ::taken\n::add-mask::a\r\n"
)
_SAID = f"SAID = {_HOSTILE!r}"
_TEXTS = ("page.md", "page.html")
LIVE = {".md": r"(?m)(?<!\\)<(?!!--)/?\w[^>]*x onerror|^::|\x1b", ".html": r"<img src=x|</script><img|\x1b"}


def _said(name: str, reader: str, **words: str) -> Command:
    """A suite that says hostile words, read by a command."""
    run = (*PYTEST, "--kt-report", "out", "-v", "-ra", "--color=no")
    commands = (run, _READERS[reader]) if reader else (run,)
    files = {_FILE: suite(**{"head": _SAID, **words})}
    return Command("text", f"{name}, {reader or 'pytest'}", files, commands, (0, 1, 2), safe=_TEXTS)


_SPOKEN: dict[str, dict[str, str]] = {
    "a kernel's error": {"before": "raise ValueError(SAID)"},
    "an oracle's error": {"oracle": "raise ValueError(SAID)"},
    "an exception's name": {"oracle": "raise type(SAID, (ValueError,), {})('x')"},
    "the name of a kernel": {
        "result": "y * 1.5",
        "head": f"{_SAID}\n_for = kt.oracle_for\ndef renamed(k, **o):\n    k.__name__ = k.__qualname__ = SAID\n"
        "    return _for(k, **o)\nkt.oracle_for = renamed",
    },
    "the reason of an xfail": {"kernel": "x_ref[...] * 3", "declared": ", xfail=[kt.xfail(reason=SAID)]"},
    "the name of a rejection": {"declared": ", rejects=[kt.rejects(SAID, raises=ValueError)]"},
    "a declaration": {"declared": ", backends=(SAID,)"},
    "a dim's block": {"declared": ", more=kt.array(kt.dim(block=type('B', (), {'__repr__': lambda s: SAID})()))"},
    "the options of a static": {"parameters": ", mode", "result": "y * 3", "declared": ", mode=kt.static(SAID, 'b')"},
}  # fmt: skip
_FIELDS = ("pairing", "item", "backend", "signature", "message", "family", "dtype", "tolerance", "case", "target")


def _shards(name: str) -> Command:
    """The page's action on an artifact with this name: digits may be counted, and nothing may run."""
    (step,) = [s for s in yaml.safe_load((ROOT / ".github/actions/page/action.yml").read_text("utf-8"))["runs"]["steps"]
               if s.get("name") == "Legs out of their shards"]  # fmt: skip
    return Command("text", f"an artifact named {name}", {f"kerneltest-records/{name}/x": ""}, (("BASH", step["run"]),),
                   (0, 1, 2), never=(), makes="RAN", limit=20)  # fmt: skip


TEXT = (
    *(_said(name, reader, **words) for name, words in _SPOKEN.items() for reader in ("", "summary")),
    *(Command("text", f"{name} in a record, {reader}", {}, (_READERS[reader],), (0, 1, 2), reuses="red", safe=_TEXTS,
              damage=_record(**{name: _HOSTILE})) for name in _FIELDS for reader in ("summary", "report")),
    *(Command("text", f"an invalid detail, {reader}", {}, (_READERS[reader],), (1, 2), reuses="red", safe=_TEXTS,
              damage=_record(detail={"kind": _HOSTILE})) for reader in ("summary", "report", "diff", "merge")),
    *(_shards(name) for name in ("kerneltest-x-1ofa[$(touch RAN)]", "kerneltest-x-1of99999999", "kerneltest-x-1of010",
                                 "kerneltest-$(touch RAN)-1of1", "-rf-1of1", "kerneltest-`touch RAN`-1of2")),
)  # fmt: skip
COMMANDS = (*EXITS, *WAITING, *TEXT, *RECORDS)
Attack = Pairing | Change | Command
ATTACKS: tuple[Attack, ...] = (*CHANGES, *PAIRINGS, *COMMANDS)
