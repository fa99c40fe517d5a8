"""A finding of kerneltest on its own. Exits with 1 while the kernel still fails, with 0 once it does not,
with 2 where the kernel cannot be imported.

Needs NumPy, JAX (with its ml_dtypes) and the kernel's module.
"""

import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

FOUND = 'special_mismatch: 2240 of 2240 elements wrong, every element; worst at [0, 0], tile n=0: got nan, expected -3.9053212e+10 \xb1 1.14e+05\nNaN though no argument holds one: so interpret mode fills what nobody wrote, and padding'
INPUTS = '0980ea2032ab4cbf-interpret.npz'
FOLDERS = ['../../..']
PLATFORM = 'cpu'
INTERPRET = True
OPTIONS = {'xla_backend_optimization_level': 0, 'xla_llvm_disable_expensive_passes': True}
X64 = False
OUTPUT = 0
INDEX = (0, 0)
EXPECTED = -39053212016.96995
BOUND = 114083.58264820371
SIGNED_ZEROS = False

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE / folder) for folder in FOLDERS] + [str(Path.cwd())]
jax.config.update("jax_enable_x64", X64)


def imported(module, name):
    try:
        return attrgetter(name)(import_module(module))
    except (ImportError, AttributeError) as error:
        print(f"cannot import {name} from {module}: {error}", file=sys.stderr)
        sys.exit(2)


def load():
    """The arguments that failed, bit for bit."""
    with np.load(HERE / INPUTS, allow_pickle=False) as saved:
        bits = {tuple(key.split(":", 1)): saved[key] for key in saved.files}
    return {path: v.view(getattr(ml_dtypes, kind, kind)).reshape(v.shape) for (kind, path), v in bits.items()}


def rewritten(jaxpr):
    """A jaxpr in which every Pallas call is interpreted, or compiled, as INTERPRET says."""
    equations = []
    for equation in jaxpr.eqns:
        params = {key: within(each) for key, each in equation.params.items()}
        if equation.primitive.name in ("pallas_call", "core_map", "mpmd_map") and "interpret" in params:
            params["interpret"] = INTERPRET
        equations.append(equation.replace(params=params))
    return jaxpr.replace(eqns=equations)


def within(value):
    if isinstance(value, ClosedJaxpr):
        return value.replace(jaxpr=rewritten(value.jaxpr))
    if isinstance(value, Jaxpr):
        return rewritten(value)
    if isinstance(value, (tuple, list)) and any(isinstance(each, (ClosedJaxpr, Jaxpr)) for each in value):
        return type(value)(map(within, value))
    return value


def run(arguments):
    """The kernel's outputs."""
    kernel = imported('examples.broken_kernels', 'matmul_unmasked_depth')

    def call(x):
        return jax.tree_util.tree_leaves(kernel(x['x'], x['y']))

    leaves = jax.device_put(jax.tree_util.tree_leaves(arguments), jax.devices(PLATFORM)[0])
    with jax.default_device(jax.devices(PLATFORM)[0]):
        function = jax.jit(jaxpr_as_fun(within(jax.make_jaxpr(call)(arguments))))
        compiled = function.lower(*leaves).compile(compiler_options=OPTIONS or None)
        return [np.asarray(output) for output in compiled(*leaves)]


def conforms(actual):
    """Whether an element is what was expected: the same class, and within the bound where it is finite."""
    rounded = np.asarray(EXPECTED).astype(actual.dtype)
    if isinstance(EXPECTED, int):  # also booleans
        return bool(actual == rounded)
    got, wanted = float(actual), float(rounded)
    if SIGNED_ZEROS and got == wanted == 0:
        return bool(np.signbit(got) == np.signbit(wanted))
    largest = float(np.asarray(abs(EXPECTED) + BOUND).astype(actual.dtype))
    overflowed = np.isinf(got) and np.sign(got) == np.sign(EXPECTED) and np.isinf(largest)
    within = np.isfinite(got) and abs(got - EXPECTED) <= BOUND
    return bool(got == wanted or (np.isnan(got) and np.isnan(wanted)) or within or overflowed)


def main():
    print(f"found: {FOUND}")
    try:
        outputs = run(load())
    except Exception as error:
        print(f"now: the kernel raised {type(error).__name__}: {error}")
        return 1
    if INDEX is None:
        print("now: the kernel ran")
        return 0
    actual = outputs[OUTPUT][INDEX]
    failed = not conforms(actual)
    print(f"now: {'still wrong' if failed else 'right'} at {list(INDEX)}: got {actual}, expected {EXPECTED} ± {BOUND}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
