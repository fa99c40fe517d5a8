"""A child for `kerneltest.backends.workers` that answers, talks, dies and hangs as it is told."""

import json
import os
import sys
import time

for line in sys.stdin:
    request = json.loads(line)
    match request["do"]:
        case "die":
            print("about to die", file=sys.stderr, flush=True)
            os._exit(7)
        case "die with a stack trace":
            stamp = "F1125 07:27:21.370806   31711 error_handler.cc:44] "
            trace = f"{stamp}*** Begin stack trace ***\n\t_start\n*** End stack trace ***\n"
            print(f"{stamp}LLVM ERROR: Cannot select: intrinsic\n{trace}", file=sys.stderr, flush=True)
            os._exit(7)
        case "hang":
            time.sleep(600)
        case "talk":
            print("a warning", file=sys.stderr, flush=True)
    print(json.dumps({"pid": os.getpid()}), flush=True)
