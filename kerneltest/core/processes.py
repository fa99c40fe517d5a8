"""The memory that a process may still allocate, and processes that exit with their parent."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import Any

import psutil

_CONTROL_GROUP = Path("/sys/fs/cgroup")  # of a container
_LIMITS = (  # its limit and its usage; the second pair is that of cgroups v1
    ("memory.max", "memory.current"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
)


def free_memory(control_group: Path = _CONTROL_GROUP) -> int:
    """Returns the bytes that a process could still allocate: on this machine, or in its container if that has fewer."""
    free = int(psutil.virtual_memory().available)
    for names in _LIMITS:
        try:
            limit, usage = ((control_group / name).read_text(encoding="ascii").strip() for name in names)
            free = min(free, int(limit) - int(usage))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return max(free, 0)


def depend_on_parent(temporary: Path | None = None) -> None:
    """Has this process end with its parent, and before it if memory runs out.

    Args:
      temporary: folder to delete then.
    """
    threading.Thread(target=_exit_with, args=(multiprocessing.parent_process(), temporary), daemon=True).start()
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _exit_with(parent: Any, temporary: Path | None) -> None:
    parent.join()
    if temporary is not None:
        rmtree(temporary, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)
