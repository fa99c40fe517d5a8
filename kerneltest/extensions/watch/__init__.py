"""`kerneltest watch`: runs changed items whenever a Python file is saved.

Each run is a child that is forked from a process which has imported JAX and pytest (`preloaded`), so that it neither
waits for imports nor sees a stale module. `session` handles saves, keys and the ends of runs.
"""
