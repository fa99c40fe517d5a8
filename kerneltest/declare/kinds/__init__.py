"""The kinds of array arguments, one module each. Importing the package registers every kind, in alphabetical order."""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
