"""The values that a kernel should give, and how far a correct kernel may be from them.

`evaluation` evaluates an oracle on a case and returns an `Expectation` of the outputs, in float64 and int64; `gradient`
returns one of the gradient. No bound depends on what a kernel computed.
"""

import sys
from types import ModuleType
from typing import NoReturn


class _OraclePackage(ModuleType):
    """This package, which `@kt.oracle(...)` reaches by mistake."""

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("kt.oracle is a package of kerneltest; write @kt.oracle_for(kernel, ...) to pair a kernel")


sys.modules[__name__].__class__ = _OraclePackage
