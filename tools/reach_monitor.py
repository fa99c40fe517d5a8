"""Writes down which lines of kerneltest/ a process executes. tools/reach.py copies this file as `sitecustomize.py`.

Every process that a test starts or forks appends to one file, a line at a time, so that none is lost if it is killed.
"""

import fcntl
import os
import sys
from contextlib import suppress
from types import CodeType

if "REACH_LINES" in os.environ:
    PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kerneltest", "")  # noqa: PTH118, PTH120, PTH100
    _opened = os.open(os.environ["REACH_LINES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    OUTPUT = fcntl.fcntl(_opened, fcntl.F_DUPFD_CLOEXEC, 700)  # above what tests open and count
    os.close(_opened)
    WATCHED = sys.monitoring
    EVENTS = WATCHED.events

    def _enter(code: CodeType, _offset: int) -> object:
        if code.co_filename.startswith(PACKAGE):
            WATCHED.set_local_events(4, code, EVENTS.LINE)
        return WATCHED.DISABLE

    def _line(code: CodeType, line: int) -> object:
        with suppress(OSError):  # which a daemon has closed
            os.write(OUTPUT, f"{code.co_filename.removeprefix(PACKAGE)}:{line}\n".encode())
        return WATCHED.DISABLE

    WATCHED.use_tool_id(4, "reach")
    WATCHED.register_callback(4, EVENTS.PY_START, _enter)
    WATCHED.register_callback(4, EVENTS.LINE, _line)
    WATCHED.set_events(4, EVENTS.PY_START)
