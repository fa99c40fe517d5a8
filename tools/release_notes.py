"""Prints the changelog of one version as the notes of its release: `python tools/release_notes.py 0.2.0`.

Links lead to the files of that version, since a release's page is not in the repository.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://github.com/kerneltest/kerneltest"


def release_notes(changelog: str, version: str) -> str:
    """Returns the section of a version, with whole links.

    Raises:
      ValueError: the changelog has no such version, or it is empty.
    """
    found = re.search(
        rf"^## \[{re.escape(version)}\].*?\n(.*?)(?=^## \[|^\[[^\]]+\]: )", changelog, re.DOTALL | re.MULTILINE
    )
    notes = found[1].strip() if found else ""
    if not notes:
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    here = f"{REPOSITORY}/blob/v{version}"
    notes = re.sub(r"\]\(#", f"]({here}/CHANGELOG.md#", notes)
    return re.sub(r"\]\((?!https?:)", f"]({here}/", notes) + "\n"


if __name__ == "__main__":
    print(release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), sys.argv[1]), end="")
