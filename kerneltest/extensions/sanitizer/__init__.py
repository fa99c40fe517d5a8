"""Kernels under NVIDIA's compute-sanitizer and between guard zones, each in a separate process."""

from kerneltest.execute.settings import Setting, SettingKind, register_setting
from kerneltest.extensions.sanitizer.tools import TOOLS, parse_tools

SANITIZE = register_setting(
    Setting(
        "sanitize",
        (),
        SettingKind(f"a comma-separated list of {', '.join(TOOLS)} or all", parse_tools, lambda tools: True, ",".join),
        f"on devices, also run under tools that watch memory: {', '.join(TOOLS)}, or all",
        planned=True,
        command="if set",
    ),
    __name__,
)
