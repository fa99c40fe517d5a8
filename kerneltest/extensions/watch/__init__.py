"""`kerneltest watch`: runs changed items whenever a Python file is saved.

`warm_process` forks a fresh process for each run from one that has imported JAX and pytest, so that a run neither waits
for imports nor sees a stale module. `save_events` and `key_presses` put events into a queue, and `watch_session`
handles them.
"""
