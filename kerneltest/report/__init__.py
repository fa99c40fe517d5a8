"""All that people look at or run again.

Finished runs enter, read and reconciled by `records.runs`; lines for a terminal, pages, badges, commands and scripts
leave. What the renderings share is here: the matrix (`matrix`), the counts (`counts`), commands (`commands`) and
templates (`templating`). This room calls those before it, up to `lowering_map`; `pytest_plugin` and the command line
call its three rooms.
"""
