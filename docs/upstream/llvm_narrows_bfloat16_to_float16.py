"""float16(float32(x) * 0.5) of a bfloat16 x = 100000 is inf on an NVIDIA GPU, and not 50000.

LLVM's InstCombine (visitFPTrunc) narrows the product to float16(x) * float16(0.5), since 8 + 11 bits of significands
fit into float32's 24. It does not ask for the range: bfloat16 has float32's, float16 has not. Results below 2^-14 are
rounded twice. Triton 3.6.0 and 3.9.0 for sm_80 and sm_90 (this script, no GPU needed). On an H200 with JAX 0.11.2 it is
inf from jax.jit, from Pallas by Triton and by Mosaic GPU, where suites/test_pipeline_compute.py found it. On a CPU, and
for gfx942, where the product is one mixed-precision instruction, it is 50000.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def halve(x_ptr, o_ptr, block: tl.constexpr):
    i = tl.arange(0, block)
    tl.store(o_ptr + i, (tl.load(x_ptr + i).to(tl.float32) * 0.5).to(tl.float16))


types = {"x_ptr": "*bf16", "o_ptr": "*fp16", "block": "constexpr"}
source = ASTSource(fn=halve, signature=types, constexprs={"block": 128})
ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
found = [line.strip() for line in ptx.splitlines() if line.strip().startswith(("cvt.", "mul.f", "mul.rn.f"))]
print("Triton", triton.__version__, *found, sep="\n  ")  # mul.f32 between the two conversions would be right
if any("mul.f16" in line or "mul.rn.f16" in line for line in found):
    print("the product is of float16: x = 100000 becomes inf")
