"""A child that answers, talks, dies and hangs as it is told; as a program, the parent of one that it leaves behind."""

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kerneltest.core.children import Child, answer_requests


def serve() -> Any:
    return answer


def answer(request: dict[str, Any]) -> dict[str, Any]:
    match request["do"]:
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(7)
        case "die with a stack trace":
            stamp = "F1125 07:27:21.370806   31711 error_handler.cc:44] "
            trace = f"{stamp}*** Begin stack trace ***\n\t_start\n*** End stack trace ***\n"
            print(f"{stamp}LLVM ERROR: Cannot select: intrinsic\n{trace}", file=sys.stderr, flush=True)
            os._exit(7)
        case "leave":
            os._exit(0)
        case "abort":
            os.abort()
        case "hang":
            time.sleep(600)
        case "talk":
            print("a warning", file=sys.stderr, flush=True)
        case "raise":
            raise ValueError("not that")
        case "close":
            for number in _pipes():
                os.close(number)
            time.sleep(600)
        case "write into all pipes":
            for number in _pipes():
                try:
                    os.set_blocking(number, False)
                    os.write(number, b"\x00\x00\x00\x04\xde\xad\xbe\xef{[" * 3)
                except OSError:
                    continue
        case "eat":
            kept = []
            while True:
                kept.append(bytearray(b"x" * 2**20))
                time.sleep(0.001)  # the limit is looked at from time to time
        case "start":
            return {"started": subprocess.Popen(["sleep", "600"]).pid}
    return {"pid": os.getpid(), "text": request.get("text", "")}


def _pipes() -> list[int]:
    """Descriptors of the pipes of this process that no library uses."""
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [number for number in numbers if number not in (1, 2) and _is_pipe(number)]


def _is_pipe(number: int) -> bool:
    try:
        return stat.S_ISFIFO(os.fstat(number).st_mode)
    except OSError:
        return False


if __name__ == "__main__":
    if len(sys.argv) == 4:
        start, do, temporary = sys.argv[1:]
        made = Child("tests.stubborn" if start == "exec" else serve, "the child", start, temporary=Path(temporary))  # type: ignore[arg-type]
        print(made.ask({"do": "echo"}, 120)["pid"], flush=True)
        made.ask({"do": do}, 20)
        time.sleep(600)
    answer_requests(answer)
