"""A shard that is read while its process writes it."""

import io
from pathlib import Path

import pytest

from kerneltest.records import record_files
from kerneltest.records.record_files import line_of, read_records
from tests.records.test_records import RECORD

LINE = line_of(RECORD) + b"\n"


class Growing(io.BytesIO):
    """A file whose last line is completed as soon as its beginning has been read."""

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        if line and not line.endswith(b"\n"):
            place = self.tell()
            self.write(LINE[len(line) :])
            self.seek(place)
        return line


@pytest.mark.parametrize(("written", "records"), [(1, 1), (len(LINE) // 2, 1), (len(LINE) - 1, 2)])
def test_a_line_that_is_completed_meanwhile_damages_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, records: int
) -> None:
    (tmp_path / "records-gw0.jsonl").touch()
    monkeypatch.setattr(record_files, "open_inside", lambda *_: Growing(LINE + LINE[:written]))
    assert list(read_records(tmp_path)) == [RECORD] * records
