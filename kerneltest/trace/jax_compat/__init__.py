"""All that kerneltest knows of the private parts of JAX and jaxlib, a small module for each.

JAX's own objects enter; plain data, or JAX's objects again, leave: dialects, source lines, MLIR attributes. Any module
may call these; none of them imports the rest of `jaxprs`. When a release of JAX breaks kerneltest, mend it here.
"""
