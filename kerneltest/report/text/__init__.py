"""Renders runs and comparisons as text.

`terminal_summary` and `diff_text` make lines for a terminal, `markdown_summary` and `diff_text` pages for a CI job,
`badge` badges, `mutant_lines` mutation scores, and `item_failure` the message of a failed item. All text from records
passes `tables.for_terminal` or `tables.for_markdown`.
"""
