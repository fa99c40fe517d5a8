"""The optional parts of kerneltest, one a folder. No other room imports them.

They register through the functions that users have. This table lists them, and `core.extension_registry` imports
those that a registry needs before it is first read.
"""

from importlib import import_module
from types import ModuleType

# By registry: the modules that add to it when they are imported.
MODULES = {
    "commands": (
        "kerneltest.extensions.audit.audit_command",
        "kerneltest.extensions.lowering_map.command",
        "kerneltest.extensions.mutation.commands",
        "kerneltest.extensions.same_bits.command",
        "kerneltest.extensions.watch.command",
    ),
    "groups": (
        "kerneltest.extensions.proofs.proof_group",
        "kerneltest.extensions.same_bits.group",
        "kerneltest.extensions.sanitizer.group",
    ),
    "mutations": ("kerneltest.extensions.mutation.operators",),
    "panels": ("kerneltest.extensions.mutation.panel",),
    "plugins": ("kerneltest.extensions.mutation.plugin", "kerneltest.extensions.ray.plugin"),
    "settings": (
        "kerneltest.extensions.mutation",
        "kerneltest.extensions.proofs",
        "kerneltest.extensions.sanitizer",
        "kerneltest.extensions.ray",
    ),
}


def load(registry: str) -> list[ModuleType]:
    """Imports the extensions that add to a registry, and returns them."""
    return [import_module(module) for module in MODULES[registry]]
