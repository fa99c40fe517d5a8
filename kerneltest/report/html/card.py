"""Cards for notebooks: a suspect, a finding or a result in HTML that loads and runs nothing."""

from collections.abc import Sequence

from kerneltest.report import templating
from kerneltest.report.text.suspect_text import format_counts, format_suspect
from kerneltest.triage.suspect import Suspect

_MOST_SUSPECTS = 10


def render_card(title: str, lines: Sequence[str], *, counts: str = "", good: bool = False) -> str:
    """Renders one card.

    Args:
      title: its first line.
      lines: the others.
      counts: a note beside the title.
      good: whether the card is about a success.
    """
    return templating.render("card.html", title=title, lines=lines, counts=counts, good=good)


def render_suspect(suspect: Suspect) -> str:
    """Renders a suspect as the page does: its title, its smallest case and its root cause."""
    return render_card(suspect.title, format_suspect(suspect)[1:], counts=format_counts(suspect))


def render_result(headline: str, suspects: Sequence[Suspect], remarks: Sequence[str], *, good: bool) -> str:
    """Renders a result: its headline, and a card of each suspect."""
    more = len(suspects) - _MOST_SUSPECTS
    told = [*remarks, *([f"and {more} more suspects"] if more > 0 else [])]
    cards = [render_card(headline, told, good=good), *map(render_suspect, suspects[:_MOST_SUSPECTS])]
    return "\n".join(cards)
