"""Renders HTML pages: the report of one or more runs, and the comparison of two sets of runs.

`render_page` fills in the templates. `page` holds the values that the report's template shows, `page_data` the JSON
document that the scripts in `static/` draw, with `finding_data` for findings and suspects. A page is made from records
only, and needs no other file.
"""
