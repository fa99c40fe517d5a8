"""How much memory is free here, for a process that may take all of it."""

from pathlib import Path

import psutil

_GROUP = Path("/sys/fs/cgroup")  # of a container; the second names are those of its first version
_LIMITS = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))


def free(group: Path = _GROUP) -> int:
    """Bytes that a process could still take: what the machine has left, or the container if that is less."""
    left = int(psutil.virtual_memory().available)
    for limit, usage in _LIMITS:
        try:
            most, taken = ((group / name).read_text(encoding="ascii").strip() for name in (limit, usage))
            left = min(left, int(most) - int(taken))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(left, 0)
