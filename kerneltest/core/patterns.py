"""Regular expressions for text by JAX, compilers and users, in time linear in the text."""

import re


def in_order(*pieces: str) -> re.Pattern[str]:
    """Compiles a pattern of pieces, each of which is matched once, right after the piece before it.

    A search for `A.*?B` looks for B once for each A, which is quadratic in a text without B. Here `.*?A`, `.*?B` are
    two pieces: nothing is tried again. A dot also matches the end of a line.

    Args:
      *pieces: regular expressions, each with at most one repetition of a dot.
    """
    return re.compile(r"\A" + "".join(f"(?>{piece})" for piece in pieces), re.DOTALL)
