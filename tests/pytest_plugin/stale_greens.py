"""Changes between two runs that make a kernel or its oracle wrong: each with the files before it and the change itself.

A change is a function of the suite's folder. Unless a case says otherwise, the kernel multiplies by `FACTOR` of the
module `helper`, which is 2, and the oracle by 2.
"""

import itertools
import os
import py_compile
import time
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SUITE = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
import kerneltest as kt
{head}

def scale(x):
    def body(x_ref, o_ref):
        o_ref[...] = {kernel}
    y = pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
    return {result}

@kt.oracle_for(scale, x=kt.array("n", "float32", domain=(1, 9)), dims=dict(n=kt.dim(values=({length},))))
def doubled(x):
    return {oracle}
"""
HELPER = "import helper\nFACTOR = helper.FACTOR"
TWO, THREE = "FACTOR = 2.0\n", "FACTOR = 3.0\n"
LIBRARY = {"site/library-1.0.dist-info/METADATA": "Name: library\nVersion: 1.0\n"}

_LATER = itertools.count(0, 10**9)  # nanoseconds

Change = Callable[[Path], None]


@dataclass(frozen=True)
class Stale:
    """One way in which the code behind a green item changes.

    `kernel`, `result` and `oracle` are the values that the Pallas call, the function around it, and the oracle compute.
    `options` and `variables` are those of pytest in the second run, `first` are its options in the first one.
    """

    change: Change = lambda folder: None
    head: str = HELPER
    kernel: str = "x_ref[...] * FACTOR"
    result: str = "{}"
    oracle: str = "x * 2"
    files: Mapping[str, str] = field(default_factory=lambda: {"helper.py": TWO})
    prepare: Change = lambda folder: None
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    first: tuple[str, ...] = ()
    length: int = 3

    @property
    def changes_one_suite(self) -> bool:
        """Whether suites in other folders of the same run do not see the change."""
        return not (self.first or self.options or self.variables or "conftest.py" in self.files)

    def write(self, folder: Path) -> None:
        """Writes the suite as it is before the change."""
        for name, text in self.files.items():
            write(folder, name, text)
        words = dict(head=self.head, kernel=self.kernel, result=self.result.format("y"), oracle=self.oracle)
        words |= {"length": str(self.length)}
        write(folder, "test_suite.py", SUITE.format(**words))
        self.prepare(folder)


def write(folder: Path, name: str, text: str) -> None:
    """Writes a file so that Python does not take its compiled code for that of an earlier text."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    moment = time.time_ns() + next(_LATER)
    os.utime(path, ns=(moment, moment))


def writes(name: str, text: str) -> Change:
    return lambda folder: write(folder, name, text)


def compiles(text: str) -> Change:
    """Leaves only the compiled code of a helper."""

    def change(folder: Path) -> None:
        write(folder, "helper.py", text)
        py_compile.compile(str(folder / "helper.py"), str(folder / "helper.pyc"), doraise=True)
        (folder / "helper.py").unlink()

    return change


def zips(text: str) -> Change:
    """Puts a helper into a zip file."""

    def change(folder: Path) -> None:
        with zipfile.ZipFile(folder / "code.zip", "w") as file:
            file.writestr("helper.py", text)

    return change


def keeps_stamp(name: str, text: str) -> Change:
    """Writes a text of the same length, with the times of the file before."""

    def change(folder: Path) -> None:
        path = folder / name
        before = path.stat()
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    return change


def builds(factor: str) -> Change:
    """Builds a shared library that returns a number."""

    def change(folder: Path) -> None:
        write(folder, "number.c", f"double number(void) {{ return {factor}; }}\n")
        assert not os.system(f"cc -shared -fPIC -o {folder}/number.so {folder}/number.c")

    return change


HOOK = """
import importlib.abc, importlib.machinery, sys
class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "helper" else None
    def exec_module(self, module):
        module.FACTOR = {}
sys.meta_path.insert(0, Finder())
"""
BY_PATH = """
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("anything", pathlib.Path(__file__).with_name("hidden.txt.py"))
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
FACTOR = module.FACTOR
"""
OPTION = """
def pytest_addoption(parser):
    parser.addoption("--factor", default="2")
def pytest_configure(config):
    import os
    os.environ["SUITE_FACTOR"] = config.getoption("--factor")
"""
ENVIRON = "import os\nFACTOR = float(os.environ.get('SUITE_FACTOR', '2'))"
SITE = "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'site'))\n"
LIBRARY_HEAD = SITE + "from library import FACTOR"
RANKS = "(x_ref[...] + jnp.zeros((1, 3), jnp.float32)).reshape(3) * FACTOR"
GLOBAL = "import helper\nFACTOR = 2.0\ndef change(): pass\nhelper.patch(globals())"
PATCH = "def patch(names):\n    names['FACTOR'] = {}\n"
NUMPY = "import numpy as np\nbefore = np.positive\nnp.positive = lambda x: {} * before(x)\n"
SAVES = "import pathlib\ndef pytest_collection_finish():\n    pathlib.Path('helper.py').write_text('FACTOR = 3.00')\n"
PRIMITIVE = """
import helper
from jax.extend.core import Primitive
from jax.interpreters import mlir
scaled = Primitive("scaled")
scaled.def_abstract_eval(lambda x: x)
scaled.def_impl(jax.jit(scaled.bind))
mlir.register_lowering(scaled, mlir.lower_fun(lambda x: x * helper.FACTOR, multiple_results=False))
"""
BACKEND = """
import kerneltest as kt
from kerneltest.backends.interpret import Interpret
class Factor:
    def __init__(self, inner):
        self.inner, self.precision = inner, inner.precision
    def run(self, leaves):
        return [value * {} for value in self.inner.run(leaves)]
@kt.backend("mine")
class Mine(kt.Backend):
    tier = kt.Tier.INTERPRET
    def prepare(self, traced):
        return Factor(Interpret("interpret").prepare(traced))
"""
PATCHED_LOWERING = """
from jax._src.pallas.triton import lowering
before = lowering.lower_jaxpr_to_triton_module
def patched(*arguments, **options):
    {}
    return before(*arguments, **options)
lowering.lower_jaxpr_to_triton_module = patched
"""
SECOND_WORKER = """
import os, helper
if os.environ.get("PYTEST_XDIST_WORKER") == "gw1" or "SUITE_LATER" in os.environ:
    helper.FACTOR = 3.0
"""


def on(backend: str) -> dict[str, tuple[str, ...]]:
    """Returns the options of both runs for another backend."""
    return dict.fromkeys(("first", "options"), ("--kt-backends", backend))


# By what changes.
WAYS: dict[str, Stale] = {
    "a helper": Stale(writes("helper.py", THREE)),
    "an installed package of the same version": Stale(
        writes("site/library/__init__.py", THREE),
        head=LIBRARY_HEAD,
        files={**LIBRARY, "site/library/__init__.py": TWO},
    ),
    "a module of an installed package": Stale(
        writes("site/library/deep.py", THREE),
        head=LIBRARY_HEAD,
        files={**LIBRARY, "site/library/__init__.py": "from .deep import FACTOR", "site/library/deep.py": TWO},
    ),
    "import_module": Stale(
        writes("helper.py", THREE), head="import importlib\nFACTOR = importlib.import_module('hel' + 'per').FACTOR"
    ),
    "__import__": Stale(writes("helper.py", THREE), head="FACTOR = __import__('helper').FACTOR"),
    "importorskip": Stale(
        writes("helper.py", THREE), head="import pytest\nFACTOR = pytest.importorskip('helper').FACTOR"
    ),
    "a shared library": Stale(
        builds("3.0"),
        head="import ctypes, pathlib\nlib = ctypes.CDLL(str(pathlib.Path(__file__).with_name('number.so')))\n"
        "lib.number.restype = ctypes.c_double\nFACTOR = lib.number()",
        prepare=builds("2.0"),
    ),
    "compiled code only": Stale(compiles(THREE), files={}, prepare=compiles(TWO)),
    "a zip file": Stale(
        zips(THREE),
        head="import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).with_name('code.zip')))\n" + HELPER,
        files={},
        prepare=zips(TWO),
    ),
    "an import hook": Stale(writes("conftest.py", HOOK.format(3)), files={"conftest.py": HOOK.format(2)}),
    "a file loaded by its path": Stale(
        writes("hidden.txt.py", THREE), head=BY_PATH, files={"hidden.txt.py": TWO}
    ),
    "code from exec": Stale(
        writes("code.txt", THREE),
        head="import pathlib\nexec(pathlib.Path(__file__).with_name('code.txt').read_text())",
        files={"code.txt": TWO},
    ),
    "a patch by another module": Stale(
        writes("helper.py", PATCH.format(3.0)), head=GLOBAL, files={"helper.py": PATCH.format(2.0)}
    ),
    "a patch of the helper by a conftest": Stale(
        writes("conftest.py", "import helper\nhelper.FACTOR = 3.0\n"), files={"helper.py": TWO, "conftest.py": ""}
    ),
    "a patch by a hook before the item": Stale(
        writes("conftest.py", "def pytest_runtest_setup(item):\n    import helper\n    helper.FACTOR = 3.0\n"),
        kernel="x_ref[...] * helper.FACTOR",
        files={"helper.py": TWO, "conftest.py": ""},
    ),
    "an option of a conftest": Stale(head=ENVIRON, files={"conftest.py": OPTION}, options=("--factor", "3")),
    "an environment variable": Stale(head=ENVIRON, files={}, variables={"SUITE_FACTOR": "3"}),
    "-O": Stale(head="FACTOR = 2.0 if __debug__ else 3.0", files={}, variables={"PYTHONOPTIMIZE": "1"}),
    "JAX_NUMPY_RANK_PROMOTION": Stale(kernel=RANKS, variables={"JAX_NUMPY_RANK_PROMOTION": "raise"}),
    "JAX_ENABLE_X64": Stale(
        head="FACTOR = 2.0 if jnp.arange(2).dtype == np.int32 else 3.0", files={}, variables={"JAX_ENABLE_X64": "1"}
    ),
    "a data file": Stale(
        writes("data.json", "[3.0]"),
        head="import json, pathlib\nFACTOR, = json.loads(pathlib.Path(__file__).with_name('data.json').read_text())",
        files={"data.json": "[2.0]"},
    ),
    "an array in a file": Stale(
        writes("table.csv", "2\n3\n2\n"),
        head="import pathlib\nTABLE = np.loadtxt(pathlib.Path(__file__).with_name('table.csv'), np.float32)\n",
        kernel="x_ref[...] * 2",
        oracle="x * TABLE",
        files={"table.csv": "2\n2\n2\n"},
    ),
    "a closure": Stale(
        writes("helper.py", "def make():\n    f = 3.0\n    return lambda: f\n"),
        head="import helper\nfactor = helper.make()",
        kernel="x_ref[...] * factor()",
        files={"helper.py": "def make():\n    f = 2.0\n    return lambda: f\n"},
    ),
    "a default argument": Stale(
        writes("helper.py", "def factor(f=3.0):\n    return f\n"),
        head="import helper",
        kernel="x_ref[...] * helper.factor()",
        files={"helper.py": "def factor(f=2.0):\n    return f\n"},
    ),
    "an attribute set from outside": Stale(
        writes("helper.py", "class Config: pass\nsetattr(Config, 'fac' + 'tor', 3.0)\n"),
        head="from helper import Config",
        kernel="x_ref[...] * Config.factor",
        files={"helper.py": "class Config: pass\nsetattr(Config, 'fac' + 'tor', 2.0)\n"},
    ),
    "the oracle's helper": Stale(writes("helper.py", THREE), kernel="x_ref[...] * 2", oracle="x * helper.FACTOR"),
    "a patch of NumPy": Stale(
        writes("conftest.py", NUMPY.format(1.5)),
        kernel="x_ref[...] * 2",
        oracle="2 * np.positive(x)",
        files={"helper.py": TWO, "conftest.py": NUMPY.format(1.0)},
    ),
    "the same size and time": Stale(
        keeps_stamp("data.txt", "3.0"),
        head="import pathlib\nFACTOR = float(pathlib.Path(__file__).with_name('data.txt').read_text())",
        files={"data.txt": "2.0"},
    ),
    "a symlink": Stale(
        lambda folder: (folder / "helper.py").unlink() or (folder / "helper.py").symlink_to(folder / "other.txt"),
        files={"helper.py": TWO, "other.txt": THREE},
    ),
    "a callback": Stale(
        writes("helper.py", THREE),
        kernel="x_ref[...] * 1",
        result="jax.pure_callback(lambda v: np.float32(helper.FACTOR) * v, jax.ShapeDtypeStruct((3,), 'float32'), {})",
    ),
    "the lowering of a primitive": Stale(
        writes("helper.py", THREE), head=PRIMITIVE, kernel="x_ref[...] * 1", result="scaled.bind({})"
    ),
    "a backend in a conftest": Stale(
        writes("conftest.py", BACKEND.format(3)),
        files={"helper.py": TWO, "conftest.py": BACKEND.format(1)},
        **on("mine"),
    ),
    "a patch of the lowering by a conftest": Stale(
        writes("conftest.py", PATCHED_LOWERING.format("raise NotImplementedError")),
        files={"helper.py": TWO, "conftest.py": PATCHED_LOWERING.format("pass")},
        length=4,  # Triton's arrays have powers of 2
        **on("lower:sm_90"),
    ),
    "a file saved while pytest collects": Stale(files={"helper.py": TWO, "conftest.py": SAVES}),
    "workers with two codes": Stale(
        files={"helper.py": TWO, "conftest.py": SECOND_WORKER}, first=("-n", "2"), variables={"SUITE_LATER": "1"}
    ),
}  # fmt: skip
