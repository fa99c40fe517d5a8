"""The lines of functions that JAX traces again while it transforms an equation, as it does for a custom gradient."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

from jax._src import source_info_util
from jax._src.lib import xla_client  # type: ignore[attr-defined, unused-ignore]

from kerneltest.core.source_location import is_internal
from kerneltest.trace.jax_compat.jaxprs import SourceInfo
from kerneltest.trace.jax_compat.patches import Replacement, replace_attributes

_current = source_info_util.current
source_info_util.register_exclusion(__file__)  # its frame is in every traceback that it takes


@contextmanager
def keep_retraced_lines() -> Iterator[None]:
    """Has equations remember the line that makes them, rather than the line of the equation that JAX transforms."""
    with replace_attributes(Replacement(source_info_util, "current", _with_own_line)):
        yield


def _with_own_line() -> SourceInfo:
    context = _current()
    own = xla_client.Traceback.get_traceback()
    frames = takewhile(lambda frame: not is_internal(frame.file_name), source_info_util.user_frames(own))
    # JAX evaluates an equation, without the user's code, below kerneltest's own frames only.
    return context.replace(traceback=own) if any(True for _ in frames) else context
