"""JAX's and jaxlib's insides are touched in one place, so that a new JAX breaks one place."""

import re
from pathlib import Path

import kerneltest

PACKAGE = Path(kerneltest.__file__).parent
COMPAT = PACKAGE / "jaxprs" / "compat"
# Runs on its own, beside any version of JAX and without kerneltest.
PROBE = "lowering_map/probe"
# Also in names of modules and of loggers, where ruff's ban of imports does not look.
INSIDES = re.compile(r"jax\._src|jaxlib\.(?:mlir|triton)")


def test_the_insides_of_jax_are_mentioned_in_compat_alone() -> None:
    mentioning = {path for path in PACKAGE.rglob("*.py") if INSIDES.search(path.read_text(encoding="utf-8"))}
    outside = [str(path.relative_to(PACKAGE)) for path in mentioning if COMPAT not in path.parents]
    assert [path for path in outside if not path.startswith(PROBE)] == []
