"""The families that every pairing is tried with, a module for each group. Loading this registers them.

`kt.family` is taken from here, so that a user's families come after them, wherever they are registered.
"""

from kerneltest.plan.families import family as family

from kerneltest.plan.standard_families import structural as structural  # isort: skip - their order is that of cases
from kerneltest.plan.standard_families import numeric as numeric  # isort: skip
from kerneltest.plan.standard_families import special as special  # isort: skip
from kerneltest.plan.standard_families import masks as masks  # isort: skip
