"""Stands for compute-sanitizer and the process under it: `installed` puts it in their place, with no GPU and no JAX.

The process "runs" a kernel by looking for a name in what was exported. What it has been told to find for that, errors
recorded on an H200, is in the file that the tool was to save once the process has ended.
"""

import json
import os
import sys
import time
from pathlib import Path

import pytest

RECORDED = Path(__file__).parent / "extensions" / "sanitizer" / "recorded"
_TOLD, _SAVED, _LOG = "KERNELTEST_FAKE_TOLD", "KERNELTEST_FAKE_SAVED", "KERNELTEST_FAKE_LOG"
_TOOL = f"""#!/bin/sh
tool=$2
while [ "$1" != "--save" ]; do shift; done
export {_SAVED}="$2"
while [ "$1" != "{sys.executable}" ]; do shift; done
echo "start $tool" >> "${_LOG}"
"$@"
"""
OUTPUT = [["input", 0, 0x7F97F3248000, 4000], ["output", 0, 0x7F97F3249600, 4000]]  # as in recorded/memcheck.xml


class Fake:
    def __init__(self, folder: Path) -> None:
        self._told, self._log = folder / "told.json", folder / "log.txt"
        self._log.write_text("")

    def tell(self, **does: dict[str, object]) -> None:
        """By kernel's name: `finds`, a recorded file; `of`, the bytes of the first input with which; `ends`: `raise`,
        `die` or `hang`, so many `times`; `zone_writes`, `unguarded`: of the reply."""
        self._told.write_text(json.dumps(does))

    @property
    def done(self) -> list[str]:
        """`start TOOL` and `run KERNEL BYTES`, in order."""
        return self._log.read_text().splitlines()


def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    tool = folder / "compute-sanitizer"
    tool.write_text(_TOOL)
    tool.chmod(0o755)
    fake = Fake(folder)
    fake.tell()
    monkeypatch.setenv(_TOLD, str(folder / "told.json"))
    monkeypatch.setenv(_LOG, str(folder / "log.txt"))
    monkeypatch.setattr("kerneltest.extensions.sanitizer.processes._MODULE", "tests.fake_sanitizer")
    monkeypatch.setattr("kerneltest.extensions.sanitizer.tools.find_compute_sanitizer", lambda: str(tool))
    return fake


def main() -> None:
    told = json.loads(Path(os.environ[_TOLD]).read_text())
    found: list[str] = []
    settings = json.loads(sys.stdin.readline())
    print(
        json.dumps({"error": ["RuntimeError", "no device"]} if "device" in told else {"zone": settings["zone"]}),
        flush=True,
    )
    for line in sys.stdin:
        folder = Path(json.loads(line)["folder"])
        size = (folder / "0.bin").stat().st_size
        answer: dict[str, object] = {"arrays": OUTPUT}
        for name, does in told.items():
            if name.encode() not in (folder / "exported.pickle").read_bytes():
                continue
            log = Path(os.environ[_LOG])
            before = log.read_text().splitlines().count(f"run {name} {size}")
            log.write_text(f"{log.read_text()}run {name} {size}\n")
            if does.get("of", size) != size or before >= does.get("times", 9):
                continue
            found += [(RECORDED / does["finds"]).read_text()] if "finds" in does else []
            answer |= {key: does[key] for key in ("zone_writes", "unguarded") if key in does}
            match does.get("ends"):
                case "raise":
                    answer["error"] = ["JaxRuntimeError", "INTERNAL: unspecified launch failure"]
                case "die":
                    print("Fatal Python error", file=sys.stderr, flush=True)
                    os._exit(7)
                case "hang":
                    time.sleep(600)
        print(json.dumps(answer), flush=True)
    if _SAVED in os.environ:
        Path(os.environ[_SAVED]).write_text("".join(found))


if __name__ == "__main__":
    main()
