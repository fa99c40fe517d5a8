"""Renders runs and comparisons as text.

`terminal` and `diff` make lines for a terminal, `markdown` and `diff` pages for a CI job, `markdown` badges, and
`failure` the message of a failed item. All text from records passes `tables.for_terminal` or `tables.for_markdown`.
"""
