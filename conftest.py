"""Plain `pytest` in a checkout loads the plugin, installed or not."""

pytest_plugins = ["kerneltest"]
