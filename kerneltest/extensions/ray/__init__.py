"""Runs on the machines of a Ray cluster: the session plans, hands out jobs and writes the records that nodes send.

Only `client` imports Ray. `actor` is the node's side; `loop` tracks which item runs where, and `messages` writes each
record once. `plugin` is loaded with the pytest plugin, and loads the rest if a run uses a cluster.
"""

from kerneltest.execute.settings import TEXT, Setting, SettingKind, register_setting

RAY = register_setting(
    Setting(
        "ray", "", TEXT, "run on the Ray cluster at this address: local, auto or host:port (needs kerneltest[ray])"
    ),
    __name__,
)
GPUS = register_setting(
    Setting(
        "ray_gpus",
        1.0,
        SettingKind(
            "a positive whole number of GPUs, or a fraction of one",
            float,
            lambda gpus: 0 < gpus < float("inf") and (gpus <= 1 or gpus % 1 == 0),
            "{:g}".format,
        ),
        "number of GPUs, or the fraction of one, that a device item takes on the cluster",
    ),
    __name__,
)
ACCELERATOR = register_setting(
    Setting("ray_accelerator", "", TEXT, "type of these GPUs in Ray's naming, such as H100; any type if empty"),
    __name__,
)
