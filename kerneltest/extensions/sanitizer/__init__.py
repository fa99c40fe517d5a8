"""Kernels under NVIDIA's compute-sanitizer and between guard zones, each in a separate process."""

from kerneltest.core.run_options import RunOption, register_option
from kerneltest.extensions.sanitizer.sanitizer_tools import TOOLS, parse_tools

register_option(
    RunOption(
        "kt_sanitize",
        f"on devices, also run under tools that watch memory: {', '.join(TOOLS)}, or all",
        parse=parse_tools,
    ),
    __name__,
)
