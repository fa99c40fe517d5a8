"""`kerneltest watch [FILES]`: runs changed items whenever a Python file is saved."""

import argparse
import tempfile
import threading
from pathlib import Path

from kerneltest.cli.command_registry import Command, pass_to_pytest, refuse, register_command
from kerneltest.core.ids import PairingId


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "kerneltest watch [FILE ...] [pytest options, such as --kt-backends interpret --kt-depth quick]"
    parser.add_argument(
        "--kt-report", type=Path, metavar="FOLDER", help="folder for the page (default: a temporary one)"
    )
    pass_to_pytest(parser, without=["report"])


def _watch(chosen: argparse.Namespace) -> int:
    from kerneltest.extensions.watch.warm_process import WarmPytest
    from kerneltest.extensions.watch.watch_session import (
        KeyPress,
        Save,
        WatchError,
        WatchSession,
        find_watchfiles,
        read_keys,
        single_keys,
        watch_saves,
        watched_folders,
    )

    files = [word for word in chosen.rest if Path(PairingId.parse(word).file).exists()]
    try:
        find_watchfiles()
        folders = watched_folders(files)
    except WatchError as error:
        return refuse("watch", error)
    plugin = ["-p", "kerneltest", "-W", "ignore:Module already imported so cannot be rewritten; kerneltest"]
    with tempfile.TemporaryDirectory(prefix="kerneltest-watch-") as temporary:
        report = chosen.kt_report or Path(temporary, "report")
        pytest = WarmPytest()
        session = WatchSession(pytest, [*plugin, *chosen.rest], report)

        def put_save(paths: tuple[Path, ...], saved: float) -> None:
            session.events.put(Save(paths, saved))

        def put_key(key: str) -> None:
            session.events.put(KeyPress(key))

        for target, arguments in ((watch_saves, (folders, report.resolve(), put_save)), (read_keys, (put_key,))):
            threading.Thread(target=target, args=arguments, daemon=True).start()
        try:
            with single_keys():
                return session.run()
        except KeyboardInterrupt:
            return session.status
        finally:
            pytest.stop()


register_command(
    Command(
        "watch",
        "run changed items whenever a file is saved; further arguments are passed to pytest",
        _add_arguments,
        _watch,
    ),
    order=45,
)
