"""The column of the matrix that shows how small an error the bounds of each pairing would show."""

import math
from collections.abc import Iterable

from kerneltest.records.schema import Record
from kerneltest.records.sharpness import measure_sharpness
from kerneltest.report.panels import MatrixColumn


def sharpness_column(records: Iterable[Record]) -> MatrixColumn | None:
    """Returns the column; None if no case has a bound.

    A dtype shows its backend with the widest bounds, and a pairing its dtype with the narrowest.
    """
    by_dtype: dict[tuple[str, str], float] = {}
    for each in measure_sharpness(records):
        place = each.pairing, each.dtype
        by_dtype[place] = max(each.typical, by_dtype.get(place, 0.0))
    if not by_dtype:
        return None
    of_pairing: dict[str, float] = {}
    for (pairing, _), error in by_dtype.items():
        of_pairing[pairing] = min(error, of_pairing.get(pairing, math.inf))
    cells = {place: _format(error) for place, error in by_dtype.items()}
    cells |= {(pairing, ""): _format(error) for pairing, error in of_pairing.items()}
    meaning = "the smallest relative error of an output that the bounds of the median numeric case would show"
    return MatrixColumn("sharpness", meaning, cells)


def _format(error: float) -> str:
    return "any" if math.isinf(error) else f"{error:.1e}".replace("e-0", "e-") if error else "exact"
