"""The third answer, on its way up."""


class Undecided(Exception):  # noqa: N818 - an answer, not an error
    """Why nothing can be said of a kernel, with the operation that stands in the way."""
