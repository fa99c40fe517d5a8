"""A generated kernel, as source that declares its pairing, and the registry of productions that make them."""

import linecache
import random
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kerneltest.declare.pairing import Pairing

PLAIN = '("interpret", "interpret-tpu")'
PLAIN_AND_GPU = '("interpret", "interpret-tpu", "gpu")'
_DTYPES = ('"float32"', '"bfloat16"', '"float16"', '("float32", "bfloat16")')

MODULE = '''\
"""Kernel {seed} of kerneltest's generator: {what}."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
{imports}
import kerneltest as kt


{body}

@kt.oracle_for(
    kernel,
{declaration}
)
def oracle({parameters}):
{oracle}


if __name__ == "__main__":
    result = kt.check(oracle, depth="quick")
    print(*(finding.message for finding in result.findings), f"{{result.cases}} cases", sep="\\n")
'''


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of a kernel that a production makes.

    Attributes:
      what: the kernel in words.
      body: the source that defines `kernel`.
      arguments: the declaration of each argument, by name, as source.
      options: further options of the pairing, by name, as source.
      oracle: the source of the oracle's body.
      features: the names of the productions in it.
      imports: further lines of imports.
    """

    what: str
    body: str
    arguments: Mapping[str, str]
    options: Mapping[str, str]
    oracle: str
    features: frozenset[str]
    imports: str = ""

    def with_features(self, *features: str) -> "Draft":
        """Returns this draft with further names of productions; "" is ignored."""
        return replace(self, features=self.features | (set(features) - {""}))


@dataclass(frozen=True, slots=True)
class GeneratedKernel:
    """A kernel, right by construction, and its pairing.

    Attributes:
      seed: the seed that gives this kernel.
      what: the kernel in words.
      features: the names of the productions in it.
      source: a module that declares the pairing `oracle`.
    """

    seed: int
    what: str
    features: frozenset[str]
    source: str

    def pairing(self) -> Pairing:
        """Returns the pairing that the source declares."""
        name = f"generated_{self.seed}"
        file = f"{name}.py"
        linecache.cache[file] = len(self.source), None, self.source.splitlines(keepends=True), file
        module = types.ModuleType(name)
        module.__dict__["__file__"] = file
        exec(compile(self.source, file, "exec"), module.__dict__)
        pairing = module.__dict__["oracle"]
        assert isinstance(pairing, Pairing)
        return pairing


Production = Callable[[random.Random], Draft]
PRODUCTIONS: dict[str, Production] = {}


def random_dtype(rng: random.Random) -> str:
    """Returns the source of the dtypes of a kernel's arrays."""
    return rng.choice(_DTYPES)


def random_lengths(rng: random.Random, block: int, more: str = "") -> str:
    """Returns the source of a dim with two lengths, which may be less than a block, whole blocks, or neither.

    Args:
      rng: chooses them.
      block: the length of a block.
      more: the source of a further option of the dim.
    """
    lengths = {rng.randint(1, max(block - 1, 1)), block * rng.randint(1, 3), block + rng.randint(1, block)}
    values = ", ".join(map(str, rng.sample(sorted(lengths), 2)))
    return f"kt.dim(block={block}, values=({values},){', ' * bool(more)}{more})"


def production(make: Production) -> Production:
    """Registers a function that makes a draft from random numbers, under its name."""
    PRODUCTIONS[make.__name__] = make
    return make
