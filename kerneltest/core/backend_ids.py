"""The words that users choose from. The plugin checks a command line against them before it loads anything else."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

DEPTHS = ("quick", "standard", "deep")

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx1100", "gfx1151")
TARGET_TIERS = ("lower", "compile", "simulate")
BACKENDS = (
    "interpret",
    "interpret-mosaic-gpu",
    "interpret-tpu",
    *(f"{tier}:{target}" for tier in TARGET_TIERS for target in TARGETS),
    "compile:xla-sm_90",
    "cuda",
    "rocm",
)
# What `all` stands for: the tiers that take milliseconds, for one target of each kind; the rest by name or pattern.
ALL = (
    "interpret",
    "interpret-mosaic-gpu",
    "interpret-tpu",
    "lower:sm_90",
    "lower:gfx942",
    "lower:gfx1151",
    "simulate:sm_90",
    "simulate:gfx942",
    "cuda",
    "rocm",
)


def backend_ids(words: Sequence[str]) -> tuple[str, ...]:
    """The ids that some words stand for: ids, patterns such as `lower:*`, or `all`.

    Raises:
      ValueError: a word that stands for none; lists the known ones.
    """
    found: dict[str, None] = {}
    for word in words:
        matching = ALL if word == "all" else [each for each in BACKENDS if fnmatchcase(each, word)]
        if not matching:
            known = [each for each in BACKENDS if not each.startswith(tuple(f"{tier}:" for tier in TARGET_TIERS))]
            known += ["compile:xla-sm_90", *(f"{tier}:TARGET" for tier in TARGET_TIERS)]
            raise ValueError(
                f"unknown backend {word!r}; known are {', '.join(known)} (TARGET is one of {', '.join(TARGETS)}), "
                "patterns such as 'lower:*', or 'all'"
            )
        found |= dict.fromkeys(matching)
    return tuple(found)


def in_order(ids: Iterable[str]) -> list[str]:
    """Backend ids, each once, as tables show them: from the interpreter to the devices."""
    return sorted(dict.fromkeys(ids), key=lambda each: BACKENDS.index(each) if each in BACKENDS else len(BACKENDS))
