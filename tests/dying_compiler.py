"""A child in place of XLA's CUDA compiler: it aborts, refuses or compiles as the module's names tell it to."""

import base64
import json
import os
import sys

for line in sys.stdin:
    module = base64.b64decode(json.loads(line)["module"])
    if b"aborts" in module:
        print("LLVM ERROR: Cannot select: intrinsic %llvm.nvvm.tcgen05.commit.cg1", file=sys.stderr, flush=True)
        os.abort()
    if b"refused" in module:
        print("loc(\"kernels/here.py\":7:3): error: 'nvvm.tcgen05.alloc' is not supported", file=sys.stderr, flush=True)
        answer = {"verdict": "compile_error", "error": "JaxRuntimeError", "message": "Pass pipeline failed"}
    else:
        answer = {"hlo": "HloModule jit_run", "reports": []}
    print(json.dumps(answer), flush=True)
