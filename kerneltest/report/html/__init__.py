"""Renders HTML pages: the report of one or more runs, and the comparison of two sets of runs.

`build` fills in the templates. `page` holds the values that the report's template shows, `data` the JSON document that
the scripts in `static/` draw, with `findings` and `suspects` as parts of it. A page is made from records only, and
needs no other file.
"""
