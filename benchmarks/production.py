"""Kernels that are wrong only at sizes that users run, and their right twins: `python benchmarks/production.py`.

Each of the twins in tests/corpus/production.py is judged at its production lengths, in a process of its own, whose time
and largest memory are taken. Writes reports/production/README.md; `--backends cuda` for a GPU, `--out FILE` for another
page.
"""

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import jax

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PAGE = ROOT / "reports" / "production" / "README.md"


def judged(name: str, which: str, backend: str) -> dict[str, object]:
    """One of two twins on a backend: verdict, message, seconds, and the process's largest memory in MiB."""
    from kerneltest.backends.registry import resolve
    from kerneltest.execute.cache import Cache
    from kerneltest.execute.planning import plan_pairing
    from kerneltest.execute.runner import run_item
    from kerneltest.execute.settings import RunSettings
    from tests.corpus import TWINS

    pairing = TWINS[name].make(which == "broken")
    started = time.perf_counter()
    items = plan_pairing(pairing, f"{name}::{which}", resolve([backend]), RunSettings(depth="standard")).items
    (record,) = [o.record for item in items if item.group.name == "production" for o in run_item(item, Cache())]
    return {
        "verdict": str(record.verdict),
        "message": record.message.splitlines()[0] if record.message else "",
        "sizes": ", ".join(f"{dim}={length:,}" for dim, length in record.dims.items()),
        "seconds": time.perf_counter() - started,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backends", default="lower:gfx942,simulate:sm_90")
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--one", nargs=3, metavar=("NAME", "WHICH", "BACKEND"))
    options = parser.parse_args()
    if options.one:
        print(json.dumps(judged(*options.one)))
        return
    from tests.corpus import PRODUCTION

    names = [twin.name for twin in PRODUCTION]
    backends = options.backends.split(",")
    rows = ["| bug | sizes | backend | broken | its right twin | seconds | MiB |", "|" + " --- |" * 7]
    found = set()
    accused = 0
    for name in names:
        for backend in backends:
            both = {}
            for which in ("broken", "right"):
                command = [sys.executable, __file__, "--one", name, which, backend]
                done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
                last = (done.stdout.splitlines() or [""])[-1]
                failed = {"verdict": f"exit {done.returncode}", "message": done.stderr[-300:], "sizes": "?"}
                both[which] = json.loads(last) if last.startswith("{") else failed | {"seconds": 0, "memory": 0}
            broken, right = both["broken"], both["right"]
            if broken["verdict"] not in ("pass", "unavailable"):
                found.add(name)
            accused += right["verdict"] not in ("pass", "unavailable")
            seconds, memory = (max(each[key] for each in both.values()) for key in ("seconds", "memory"))
            said = str(broken["message"]).replace("|", "/").replace(str(ROOT) + "/", "")
            cells = [name, broken["sizes"], backend, f"{broken['verdict']}: {said}"[:240], right["verdict"]]
            rows.append(f"| {' | '.join(map(str, cells))} | {seconds:.1f} | {memory:,.0f} |")
            print(rows[-1], flush=True)
    device = jax.devices()[0].device_kind
    head = [
        "# Production sizes",
        "",
        f"{len(found)} of {len(names)} bugs are named, and {accused} of their right twins are accused. Made by "
        f"`python benchmarks/production.py --backends {options.backends}` with JAX {jax.__version__}, Python "
        f"{platform.python_version()}, {device}. Seconds and memory are the larger of the two twins'; each twin had a "
        "process of its own.",
        "",
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join([*head, *rows]) + "\n")


if __name__ == "__main__":
    main()
