"""All of kerneltest's knowledge of the private parts of JAX and jaxlib, in small modules by topic.

JAX's own objects go in; plain data, or JAX's objects again, come out: dialects, source lines, MLIR attributes. Any
module may import these; none of them imports the rest of `trace`. When a release of JAX breaks kerneltest, fix it here.
"""
