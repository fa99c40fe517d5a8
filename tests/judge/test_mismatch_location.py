"""The location of wrong elements, their diagnosis, and the windows of arrays around them."""

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kerneltest as kt
from kerneltest.judge.compare import (
    Comparison,
    MismatchLocation,
    OutputAxis,
    compare,
    describe_element,
    locate_mismatch,
    match_axes,
)
from kerneltest.judge.diagnose import describe_special_inputs, diagnose
from kerneltest.judge.mismatch_evidence import input_windows, output_dims, output_window
from kerneltest.judge.relations import MismatchContext
from kerneltest.plan.signatures import signatures
from kerneltest.records.evidence import Pattern, PatternKind
from tests.corpus import twin
from tests.found import findings
from tests.sample import double

AXES = (OutputAxis("m", 20, 8), OutputAxis("n", 21, 8))
EXPECTED = np.arange(20 * 21, dtype=np.float64).reshape(20, 21)


def _locate(change: Callable[[np.ndarray], None], expected: np.ndarray = EXPECTED) -> MismatchLocation:
    actual = expected.astype(np.float32)
    change(actual)
    return locate_mismatch(compare(actual, expected, np.zeros(expected.shape), signed_zeros=False), AXES)


def _tail(a: np.ndarray) -> None:
    a[:, 16:] = -1


def _row(a: np.ndarray) -> None:
    a[3] = -1


def _block(a: np.ndarray) -> None:
    a[8:16, ::3] = -1


def _shift(a: np.ndarray) -> None:
    a[:, 8:16] = EXPECTED[:, 0:8]


def _all(a: np.ndarray) -> None:
    a += 1


def _scattered(a: np.ndarray) -> None:
    a[2, 3] = a[9, 13] = a[17, 1] = -1


@pytest.mark.parametrize(
    ("change", "pattern", "blocks"),
    [
        (_tail, "only past the last full block of n (from 16 on)", (3, 9)),
        (_row, "only where m is 3", (3, 9)),
        (_block, "only in block 1 of m (3 blocks)", (3, 9)),
        (_shift, "holds what belongs 1 block of n further back", (3, 9)),
        (_all, "every element", (9, 9)),
        (_scattered, "", (3, 9)),
    ],
)
def test_a_pattern_is_named_or_nothing_is_claimed(
    change: Callable[[np.ndarray], None], pattern: str, blocks: tuple[int, int]
) -> None:
    found = _locate(change)
    assert (found.pattern.text() if found.pattern else "", found.wrong_blocks) == (pattern, blocks)


def test_the_worst_element_is_named_with_its_block() -> None:
    def change(a: np.ndarray) -> None:
        a[9, 17] += 100
        a[0, 0] += 1

    found = _locate(change)
    assert found.index == (9, 17)
    assert found.block == "m=1 n=2"


def test_constant_values_are_not_taken_for_a_shifted_block() -> None:
    def change(a: np.ndarray) -> None:
        a[:, 8:16] = 0

    found = _locate(change, np.full((20, 21), 5.0))
    assert found.pattern == Pattern(PatternKind.ONE_BLOCK, "n", 1, 3)


def test_axes_are_known_by_their_lengths_over_signatures() -> None:
    shapes = [(8, 8), (8, 9)]
    dims = [{"m": 8, "n": 8}, {"m": 8, "n": 9}]
    assert match_axes(shapes, dims) == ("m", "n")
    assert match_axes(shapes[:1], dims[:1]) == ("", "")


def _wrong_at(shape: tuple[int, ...], index: tuple[int, ...]) -> Comparison:
    expected = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    actual = expected.astype(np.float32)
    actual[index] += 0.5
    return compare(actual, expected, np.full(shape, 0.25), signed_zeros=False)


# shape, worst element, origin and extent of the window
PARTS = [
    ((), (), (), (1, 1)),
    ((5,), (2,), (0,), (1, 5)),
    ((5000,), (4999,), (3976,), (1, 1024)),
    ((17, 20), (16, 0), (0, 0), (17, 20)),
    ((100, 100), (0, 0), (0, 0), (32, 32)),
    ((100, 100), (50, 99), (34, 68), (32, 32)),
    ((300, 4), (299, 1), (44, 0), (256, 4)),
    ((3, 600), (1, 300), (0, 130), (3, 341)),
    ((4, 2, 100, 100), (3, 1, 60, 40), (3, 1, 44, 24), (32, 32)),
]


@pytest.mark.parametrize(("shape", "index", "origin", "extent"), PARTS)
def test_the_window_contains_the_worst_element(
    shape: tuple[int, ...], index: tuple[int, ...], origin: tuple[int, ...], extent: tuple[int, int]
) -> None:
    found = output_window(_wrong_at(shape, index), index, [OutputAxis(f"a{i}", n, 16) for i, n in enumerate(shape)])
    assert (found.origin, found.extent, found.shape) == (origin, extent, shape)
    assert len(found.values) == len(found.expected) == len(found.bound) == len(found.wrong) == extent[0] * extent[1]
    assert found.wrong.count("1") == 1
    at = found.wrong.index("1")
    assert found.values[at] - found.expected[at] == 0.5
    row, column = divmod(at, extent[1])
    place = (0, 0, *origin)
    assert (place[-2] + row, place[-1] + column) == (0, 0, *index)[-2:]
    assert found.blocks == ((16, 16) if len(shape) > 1 else (0, 16 * len(shape)))


def test_windows_have_special_values_and_integers_unchanged() -> None:
    found = output_window(compare(np.array([np.nan, np.inf, -0.0], np.float32), np.zeros(3), np.zeros(3),
                                  signed_zeros=False), (0,), [OutputAxis("n", 3, None)])  # fmt: skip
    assert repr(found.values) == "(nan, inf, -0.0)"
    integers = compare(np.array([2**31 - 1], np.int32), np.zeros(1, np.int64), np.zeros(1), signed_zeros=False)
    assert output_window(integers, (0,), [OutputAxis("n", 1, None)]).values == (2**31 - 1,)


def test_windows_of_arguments_are_around_the_element() -> None:
    def kernel(x: Any, y: Any, scale: Any) -> Any:  # type: ignore[no-untyped-def]
        return double(x) + y

    @kt.oracle_for(
        kernel,
        x=kt.array("m k", "float32"),
        y=kt.array("k n", "float32"),
        scale=kt.scalar("float32"),
        dims=dict(m=kt.dim(block=8)),
    )
    def oracle(x: Any, y: Any, scale: Any) -> Any:  # type: ignore[no-untyped-def]
        return x @ y

    x, y = np.zeros((90, 90), np.float32), np.zeros((90, 90), np.float32)
    y[70, 3] = np.nan
    windows = input_windows(oracle, {"x": x, "y": y, "scale": np.float32(2).reshape(())}, {"m": 80, "n": 40})
    left, right, scalar = windows
    assert [each.name for each in windows] == ["x", "y", "scale"]
    assert (left.origin, left.blocks) == ((75, 0), (8, 0))  # around row 80; k has no place in the output
    assert right.origin == (65, 35)  # column 40, and the row that holds the NaN
    assert (scalar.origin, scalar.extent, scalar.values) == ((), (1, 1), (2.0,))


M, N, K = 6, 16, 20


def _product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return x @ y


DIMS = dict(m=kt.dim(values=(M,)), n=kt.dim(values=(N,)), k=kt.dim(values=(K,), block=8))
TILED = dict(m=kt.dim(values=(M,)), n=kt.dim(values=(N,), block=4))


def _masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    return np.where(mask, x, 0)


RNG = np.random.default_rng(0)
X, Y = RNG.integers(-9, 9, (M, K)).astype(np.float32), RNG.integers(-9, 9, (K, N)).astype(np.float32)
A = (np.arange(M * N).reshape(M, N) + 1).astype(np.float32)
MASK = RNG.random((M, N)) < 0.5


def _pairing(name: str) -> kt.Pairing:
    """Makes a pairing on demand, since pytest would run pairings of a module as a suite."""
    if name == "masked":
        return kt.oracle_for(_masked, x=kt.array("m n", "float32"), mask=kt.mask("m n"), dims=TILED)(_masked)
    arrays = dict(x=kt.array("m k", "float32"), y=kt.array("k n", "float32"))
    return kt.oracle_for(_product, **arrays, dims=DIMS, tolerance=kt.tolerance.dot("k"))(_product)


def _diagnose(name: str, arguments: dict[str, Any], actual: np.ndarray) -> str:
    pairing = _pairing(name)
    expected = np.asarray(pairing(**{k: v.astype(np.float64) if v.dtype != bool else v for k, v in arguments.items()}))
    comparison = compare(actual, expected, np.zeros(expected.shape), signed_zeros=False)
    assert comparison.wrong.any()
    axes = (OutputAxis("m", M, None), OutputAxis("n", N, 4))
    signature = signatures(pairing, "quick")[0]
    return diagnose(MismatchContext(pairing, signature, arguments, 0, comparison, axes))


def _without_block(block: slice, factor: float = 0) -> np.ndarray:
    x = X.copy()
    x[:, block] *= factor
    return x @ Y


def _with(values: np.ndarray, at: Any, value: Any) -> np.ndarray:
    changed = values.copy()
    changed[at] = value
    return changed


DOTS = dict(x=X, y=Y)
COPY = dict(x=A, mask=np.ones((M, N), bool))


@pytest.mark.parametrize(
    ("name", "arguments", "actual", "words"),
    [
        ("dot", DOTS, _without_block(slice(16, 20)), "the sum omits the last block of k"),
        ("dot", DOTS, _without_block(slice(0, 8)), "the sum omits the first block of k"),
        ("dot", DOTS, _without_block(slice(16, 20), 2), "the sum counts twice the last block of k"),
        ("dot", DOTS, _without_block(slice(8, 16)), ""),
        ("dot", DOTS, _with(X @ Y, 3, np.nan), ""),
        ("masked", dict(x=A, mask=MASK), A, "only where mask is false"),
        ("masked", dict(x=A, mask=MASK), np.where(MASK, A + 1, 5).astype(np.float32), ""),
        ("masked", COPY, 3 * A, "each is 3 times the expected value"),
        ("masked", COPY, A / 8, "each is 0.125 times the expected value"),
        ("masked", COPY, -A, "each has the opposite sign"),
        ("masked", COPY, A * np.float32(1 + 2.0**-12), "each is too large by 0.00024 of the expected value"),
        ("masked", COPY, A * np.float32(1 - 2.0**-12), "each is too small by 0.00024 of the expected value"),
        ("masked", COPY, 3 * A + 1, ""),
        ("masked", COPY, A * np.float32(1 + 2.0**-21), ""),
        ("masked", COPY, np.concatenate([A[:, 4:8], A[:, :4], A[:, 8:]], 1),
         "blocks of n are permuted: block 0 has the values of block 1, block 1 has the values of block 0"),
        ("masked", dict(x=A * 10, mask=COPY["mask"]), np.minimum(A * 10, 256).astype(np.float32),
         "sums stop growing at about 256: they are accumulated in bfloat16"),
        # one number near 256 is a coincidence, and so are numbers that bfloat16 does not have
        ("masked", dict(x=A * 3, mask=COPY["mask"]), _with(A * 3, (5, 15), 250), ""),
        ("masked", dict(x=A * 10, mask=COPY["mask"]), np.minimum(A * 10, 255.5).astype(np.float32), "each is 255.5"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_or_nothing_is_claimed(
    name: str, arguments: dict[str, Any], actual: np.ndarray, words: str
) -> None:
    found = _diagnose(name, arguments, actual)
    assert found.startswith(words)
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("wanted", "got", "dtypes"),
    [
        ([256, 300], [0, 44], "int8 or uint8"),
        ([200, 300], [-56, 44], "int8"),
        ([511, 300], [255, 44], "uint8"),
        ([70_000, 256], [4464, 256], "int16 or uint16"),
        ([65_537, 256], [1, 256], "int16 or uint16"),  # a single one may fit 8 bits, too
        ([70_000, 256], [4465, 256], ""),
    ],
)
def test_integers_that_wrap_are_said_to_be_stored_in_fewer_bits(wanted: list[int], got: list[int], dtypes: str) -> None:
    comparison = compare(np.array(got, np.int32), np.array(wanted), np.zeros(2), signed_zeros=False)
    pairing = _pairing("masked")
    context = MismatchContext(
        pairing, signatures(pairing, "quick")[0], COPY, 0, comparison, (OutputAxis("n", 2, None),)
    )
    said = diagnose(context)
    assert said.partition(": it was stored as ")[2] == dtypes
    assert bool(said) is bool(dtypes)


@pytest.mark.parametrize(("factor", "words"), [(-1, "each has the opposite sign"), (1, "")])
def test_a_gradient_is_diagnosed_without_the_oracle(factor: float, words: str) -> None:
    """A block of the sum that lacks is a mistake in an output; the arguments are no inputs of the gradient."""
    expected = (X @ Y).astype(np.float64)
    actual = factor * X @ Y if factor < 0 else _without_block(slice(16, 20))
    comparison = compare(actual.astype(np.float32), expected, np.zeros(expected.shape), signed_zeros=False)
    pairing = _pairing("dot")
    context = MismatchContext(pairing, signatures(pairing, "quick")[0], DOTS, 0, comparison, ())
    assert diagnose(context, is_gradient=True) == words


def test_permuted_blocks_are_found_at_once_among_many() -> None:
    """Each block is looked up, not compared with each other one: 32,768 of them take as long as a copy."""
    values = np.arange(1 << 16, dtype=np.float32)
    comparison = compare(values[::-1].reshape(-1, 2)[:, ::-1].ravel().copy(), values.astype(np.float64),
                         np.zeros(values.shape), signed_zeros=False)  # fmt: skip
    pairing = _pairing("masked")
    axes = (OutputAxis("n", len(values), 2),)
    context = MismatchContext(pairing, signatures(pairing, "quick")[0], {}, 0, comparison, axes)
    started = time.thread_time()
    assert diagnose(context, is_gradient=True).startswith(
        "blocks of n are permuted: block 0 has the values of block 32767"
    )
    assert time.thread_time() - started < 20  # many minutes if each block were compared with each other one


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (_with(X, (3, 5), np.nan), "x[3, 5] is nan"),
        (_with(_with(X, (0, 1), np.inf), (2, 2), -np.inf), "x[0, 1] is inf; x[2, 2] is -inf"),
        (_with(X, 1, -np.inf), "x contains 20 NaNs or infinities"),
        (X, ""),
    ],
)
def test_the_special_values_among_the_inputs_are_named(x: np.ndarray, words: str) -> None:
    assert describe_special_inputs({"x": x, "mask": MASK}) == words


def test_a_finding_carries_its_diagnosis() -> None:
    lacking = "the sum omits the last block of k"
    found = findings(twin("the last step of k is skipped").broken(), ["interpret"])
    assert any(
        record.evidence is not None
        and record.evidence.diagnosis.startswith(lacking)
        and f"\n{lacking}" in record.message
        for record in found
    )


@pytest.mark.parametrize("apart", [1e-3, 1e-8, 2.0**-52])
def test_got_and_expected_are_shown_with_as_many_digits_as_differ(apart: float) -> None:
    found = compare(np.array([1 + apart, 0.1]), np.ones(2), np.array([0.0, 1.0]), signed_zeros=False)
    ((got, expected),) = re.findall(r"got (\S+), expected (\S+)", describe_element(found, (0,)))
    assert float(got) > float(expected)
    window = output_window(found, (0,), [OutputAxis("n", 2, None)])
    assert window.values[0] > window.expected[0]
    assert window.values[1] == 0.1


def test_dims_of_outputs_are_those_of_the_signatures_that_have_them() -> None:
    def kernel(x: Any, sums: bool) -> Any:
        return (double(x), double(x[:, 0])) if sums else double(x[:, 0])

    @kt.oracle_for(kernel, x=kt.array("m n", "float32"), sums=kt.static(False, True))
    def pairing(x: Any, sums: bool) -> Any:
        return x

    named = [output_dims(pairing, number, rank, "quick") for number, rank in ((0, 1), (0, 2), (1, 1), (1, 2))]
    assert named == [("m",), ("m", "n"), ("m",), ("", "")]
