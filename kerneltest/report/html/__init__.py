"""Renders HTML pages: the report of one or more runs, and the comparison of two sets of runs.

`page` holds the values that the templates show and fills them in, `page_data` the JSON
document that the scripts in `static/` draw, with `finding_data` for findings and suspects. A page is made from records
only, and needs no other file.
"""
