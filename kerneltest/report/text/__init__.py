"""Renders runs and comparisons as text.

`suspect_text` puts suspects into words, as `Line`s (`lines`), for all reports. `terminal_summary` and `diff_text` make
lines for a terminal, `markdown_summary` and `diff_text` pages for a CI job. All text from records passes
`core.media.for_terminal` or `lines.for_markdown`.
"""
