"""All that kerneltest knows of JAX's and jaxlib's private parts, one small module for each of them.

What enters and leaves are JAX's own objects and plain data: equations, source lines, MLIR attributes. Nothing here
imports the rest of `jaxprs`; when a JAX release breaks kerneltest, this is where the mend goes.
"""
