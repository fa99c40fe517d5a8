"""Records through three libraries that decode dataclasses: `python benchmarks/records.py`.

What kerneltest does (pydantic reads; `dumps` writes), beside cattrs and mashumaro set up as strictly as each can be
(`pip install cattrs mashumaro`), and, in a checkout with its history, beside the decoder by hand that was there before.
Times are the best of some rounds, in which all take turns.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from types import ModuleType
from typing import Any

from kerneltest.core.targets import Tier
from kerneltest.core.verdicts import Verdict
from kerneltest.records.evidence import Evidence, Pattern, PatternKind, Window
from kerneltest.records.record_files import RECORD_LINE, SCHEMA
from kerneltest.records.schema import Record
from kerneltest.records.strict_json import dumps

BY_HAND = "3b139269d7bf399a99d5ebb258de92a833c6465e"  # the last commit with the decoder by hand
PICTURES = 50  # one finding in so many has the output and an argument around its worst element


@dataclass(frozen=True, slots=True)
class Codec:
    """How a record becomes a line, and a line a record."""

    name: str
    write: Callable[[Record], str]
    read: Callable[[str], Record]


def kerneltests() -> Codec:
    def write(record: Record) -> str:
        return dumps({"schema": SCHEMA, "record": record})

    return Codec(
        f"kerneltest, pydantic {version('pydantic')}", write, lambda line: RECORD_LINE.validate_json(line).record
    )


def with_cattrs() -> Codec:
    import cattrs
    from cattrs.strategies import configure_union_passthrough

    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, hook in _strict_hooks().items():
        converter.register_structure_hook(kind, lambda value, _, hook=hook: hook(value))
    # A verdict is a str, and would be taken for one.
    for enum in (Verdict, Tier):
        converter.register_structure_hook(enum, lambda value, cls: cls(value))
    configure_union_passthrough(bool | int | float | str | None, converter)

    def write(record: Record) -> str:
        return dumps({"schema": SCHEMA, "record": converter.unstructure(record)})

    return Codec(f"cattrs {version('cattrs')}", write, lambda line: converter.structure(_loads(line)["record"], Record))


def with_mashumaro() -> Codec:
    from mashumaro.codecs import BasicDecoder, BasicEncoder
    from mashumaro.dialect import Dialect
    from mashumaro.types import SerializationStrategy

    class Strict(SerializationStrategy):
        def __init__(self, hook: Callable[[object], object]) -> None:
            self.deserialize = hook

        def serialize(self, value: object) -> object:
            return value

    class Strictly(Dialect):
        serialization_strategy = {kind: Strict(hook) for kind, hook in _strict_hooks().items()}  # noqa: RUF012

    decoder, encoder = BasicDecoder(Record, default_dialect=Strictly), BasicEncoder(Record, default_dialect=Strictly)

    def write(record: Record) -> str:
        return dumps({"schema": SCHEMA, "record": encoder.encode(record)})

    return Codec(f"mashumaro {version('mashumaro')}", write, lambda line: decoder.decode(_loads(line)["record"]))


def by_hand() -> Codec:
    """What was there before, from git: its own layout of a line, its checks of what it relied on.

    Raises:
      subprocess.CalledProcessError: this checkout lacks the commit.
    """
    modules = {name: ModuleType(f"by_hand.{name}") for name in ("strict_json", "io", "runs")}
    for name, module in modules.items():
        sys.modules[module.__name__] = module
        source = subprocess.run(
            ["git", "show", f"{BY_HAND}:kerneltest/records/{name}.py"], capture_output=True, text=True, check=True
        ).stdout
        for other in modules:
            source = source.replace(f"kerneltest.records.{other} ", f"by_hand.{other} ")
        exec(compile(source, module.__name__, "exec"), module.__dict__)
    strict_json, io, runs = (modules[name].__dict__ for name in ("strict_json", "io", "runs"))

    def read(line: str) -> Record:
        data = strict_json["loads"](line)
        io["_check_schema"](data, "shard")
        record: Record = io["_record"](data)
        runs["_check_record"](record)
        return record

    return Codec("by hand", lambda record: strict_json["dumps"]({"schema": io["SCHEMA"], **asdict(record)}), read)


def _strict_hooks() -> Mapping[type, Callable[[Any], Any]]:
    def exactly(kind: type) -> Callable[[Any], Any]:
        def check(value: Any) -> Any:
            if type(value) is not kind:
                raise TypeError(f"{kind.__name__} is due, not {value!r:.40}")
            return value

        return check

    def number(value: Any) -> float:
        if type(value) not in (int, float):
            raise TypeError(f"a number is due, not {value!r:.40}")
        return float(value)

    return {str: exactly(str), int: exactly(int), bool: exactly(bool), float: number}


def _loads(line: str) -> Any:
    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    def decode(value: dict[str, Any]) -> Any:
        return float(value["float"]) if value.keys() == {"float"} else value

    return json.loads(line, object_hook=decode, parse_constant=refuse)


def passing(number: int) -> Record:
    """A case that passed, as most have."""
    return Record(
        item="suites/test_matmul.py::matmul[simulate:sm_90-float32-numeric]",
        pairing="suites/test_matmul.py::matmul",
        backend="simulate:sm_90",
        tier=Tier.SIMULATE,
        dtype="float32",
        group="numeric",
        family="normal",
        signature=f"m=33,n={129 + number % 5},k=64,float32,activation=relu",
        dims={"m": 33, "n": 129 + number % 5, "k": 64},
        dtypes={"x": "float32", "y": "float32"},
        statics={"activation": "relu"},
        target="",
        case=f"{number:016x}",
        verdict=Verdict.PASS,
        compared=4096,
        bound_fraction=0.0371,
        tolerance="dot(over=k, accumulate=float32, slope=1)",
        seconds=0.00123,
        ulps=(3000, 1000, 96, 0, 0),
    )


def finding(number: int) -> Record:
    """A case that did not, with its evidence."""
    values = tuple(float(f"{(i * 37 + number) % 1009 / 7:.7g}") for i in range(1024)) if number % PICTURES == 0 else ()
    shown = Window(
        "", "float32", (64, 64), (16, 32), (32, 32), (16, 16), (float("nan"), *values[1:]), values,
        bound=(1e-6,) * 1024, wrong="1" + "0" * 1023,
    ) if values else None  # fmt: skip
    beside = (Window("x", "float32", (64,), (0,), (1, 128), (0, 16), values[:128]),) if values else ()
    evidence = Evidence(
        index=(20, 40), block="m=1 n=2", wrong_blocks=(1, 16), pattern=Pattern(PatternKind.ONE_BLOCK, "m", 1, 4),
        actual=float("nan"), expected=2.0, bound=1e-6, file=f"cases/{number:016x}.npz", window=shown, inputs=beside,
        arguments={"x": "float32[64, 64] [[1 2 3 ...]]", "y": "float32[64, 64] [[1 2 3 ...]]"},
    )  # fmt: skip
    message = "1 of 4096 elements wrong, only in block 1 of m (4 blocks); worst at [20, 40]: nan instead of 2"
    return replace(
        passing(number), verdict=Verdict.MISMATCH, message=message, wrong=1, bound_fraction=7.5, evidence=evidence
    )


def rounds(codecs: Sequence[Codec], records: Sequence[Record], count: int) -> Iterator[tuple[str, float, float]]:
    """By codec: name, seconds to write and seconds to read all records, each the best of `count`."""
    best = {codec.name: [float("inf")] * 2 for codec in codecs}
    for _ in range(count):
        for codec in codecs:
            started = time.perf_counter()
            lines = [codec.write(record) for record in records]
            written = time.perf_counter()
            for line in lines:
                codec.read(line)
            done = time.perf_counter()
            best[codec.name] = list(map(min, best[codec.name], (written - started, done - written)))
            assert repr(codec.read(lines[0])) == repr(records[0]), codec.name
    yield from ((name, *seconds) for name, seconds in best.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lines", nargs="?", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    codecs = [kerneltests(), with_cattrs(), with_mashumaro()]
    try:
        codecs.insert(0, by_hand())
    except subprocess.CalledProcessError:
        print(f"no commit {BY_HAND[:8]} here: not beside the decoder by hand")
    print(f"Python {sys.version.split()[0]}, {chosen.lines} lines; times as ratios to the first")
    for name, make in (("without evidence", passing), ("with evidence", finding)):
        first: tuple[float, float] | None = None
        for codec, *seconds in rounds(codecs, [make(number) for number in range(chosen.lines)], chosen.rounds):
            first = first or (seconds[0], seconds[1])
            print(
                f"{name:16}  {codec:28}  write {seconds[0]:6.2f} s ({seconds[0] / first[0]:.2f})"
                f"  read {seconds[1]:6.2f} s ({seconds[1] / first[1]:.2f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
