"""Renders finished runs for people: lines for a terminal, Markdown, badges and HTML pages.

The input is runs that `records.runs` has read and reconciled, the output is text; no kernel is executed. This package
holds what all renderings share: the matrix (`matrix`), counts and remarks (`counts`), shell commands
(`rerun_commands`), templates and the sections of extensions (`panels`). `html`, `text` and `sarif` render.
"""
