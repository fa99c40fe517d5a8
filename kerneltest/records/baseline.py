"""The run that a project compares its newer runs with, as its pyproject.toml pins it."""

import tomllib
from pathlib import Path

from kerneltest.records.diff import DiffError


def pinned_baseline(start: Path) -> Path:
    """The folder that the nearest pyproject.toml pins as `baseline` under `[tool.kerneltest]`.

    Raises:
      DiffError: nothing is pinned, or nothing that can be used.
    """
    how = 'name the older run too, or pin one in pyproject.toml: [tool.kerneltest] baseline = "FOLDER"'
    for folder in (start.absolute(), *start.absolute().parents):
        file = folder / "pyproject.toml"
        if not file.exists():
            continue
        try:
            tools = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        except (OSError, ValueError) as error:
            raise DiffError(f"{file}: {error}") from error
        settings = tools.get("kerneltest", {}) if isinstance(tools, dict) else {}
        if not isinstance(settings, dict) or not isinstance(settings.get("baseline", ""), str):
            raise DiffError(f"{file}: baseline of [tool.kerneltest] is the path of a folder, as text")
        if not settings.get("baseline"):
            raise DiffError(f"{file} pins no baseline; {how}")
        return Path(folder, settings["baseline"])
    raise DiffError(f"there is no pyproject.toml here or above; {how}")
