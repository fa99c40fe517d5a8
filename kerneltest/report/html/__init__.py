"""The HTML pages.

Merged runs and maps of what lowers enter `build.render`, a comparison enters `diff.html`; the text of one page that
needs nothing else leaves. A page is made from records alone: `page` is what the template shows, `data` what the scripts
in `static/` draw. It calls the rest of `report`, and of `text` what says a suspect or a comparison in words.
"""
