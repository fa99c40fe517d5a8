"""The words that users choose from. The plugin checks a command line against them before it loads anything else."""

DEPTHS = ("quick", "standard", "deep")
BACKENDS = ("interpret", "cuda", "rocm")
