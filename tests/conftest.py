"""Shared by the framework's own tests."""

pytest_plugins = ("pytester",)
