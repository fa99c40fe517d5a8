"""Commands that show a finding again."""

import shlex


def repro_command(folder: str, case: str, backend: str) -> str:
    """The command that judges a finding's saved inputs again."""
    return shlex.join(["kerneltest", "repro", folder, case, "--backend", backend])
