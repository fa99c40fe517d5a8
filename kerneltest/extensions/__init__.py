"""The optional parts of kerneltest, one a folder. No other room imports them.

They register through the functions that users have. This table lists them by what they register.
"""

from importlib import import_module

# By registry: the modules that add to it when they are imported.
MODULES = {
    "options": (
        "kerneltest.extensions.proofs",
        "kerneltest.extensions.sanitizer",
        "kerneltest.extensions.ray",
    ),
    "plugins": ("kerneltest.extensions.ray.ray_plugin",),
}


def load(registry: str) -> None:
    """Imports the extensions that add to a registry."""
    for module in MODULES[registry]:
        import_module(module)
