"""`kerneltest watch [FILES]`: runs changed items whenever a Python file is saved."""

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from kerneltest.cli.command_registry import command, pass_to_pytest
from kerneltest.core.ids import PairingId


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerneltest watch [FILE ...] [pytest options, such as --kt-backends interpret --kt-depth quick]"
    parser.add_argument(
        "--kt-report", type=Path, metavar="FOLDER", help="folder for the page (default: a temporary one)"
    )
    pass_to_pytest(parser, without=["report"])


@command(45, "run changed items whenever a file is saved; further arguments are passed to pytest", _add_arguments)
def _watch(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.watch import session as watching

    watching.find_watchfiles()
    folders = watching.watched_folders(list(_files(chosen.rest)))
    plugin = ["-p", "kerneltest", "-W", "ignore:Module already imported so cannot be rewritten; kerneltest"]
    with tempfile.TemporaryDirectory(prefix="kerneltest-watch-") as temporary:
        report = chosen.kt_report or Path(temporary, "report")
        pytest = watching.WarmPytest()
        session = watching.WatchSession(pytest, [*plugin, *chosen.rest], report)
        saves = (folders, report.resolve(), session.events)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, frame: sys.exit(128 + number))  # so that the run ends, too
        try:
            threading.Thread(target=watching.watch_saves, args=saves, daemon=True).start()
            threading.Thread(target=watching.read_keys, args=(session.events,), daemon=True).start()
            with watching.single_keys():
                return session.run()
        except KeyboardInterrupt:
            return session.status
        finally:
            pytest.stop()


def _files(words: Sequence[str]) -> Iterator[str]:
    # Files and folders, and names of files that do not exist, unless they may be the value of an option.
    for before, word in zip(["", *words], words, strict=False):
        file = Path(PairingId.parse(word).file)
        is_value = before.startswith("-") and "=" not in before
        if file.exists() or (file.suffix == ".py" and not word.startswith("-") and not is_value):
            yield word
