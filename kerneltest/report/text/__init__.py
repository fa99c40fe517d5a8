"""Reports as text.

Runs, counts and comparisons enter; lines for a terminal (`terminal`, `diff`), a failed item's message (`failure`),
Markdown for a job's page (`markdown`, `diff`) and badges (`badge`) leave. Whatever comes from records passes `escape`
on its way out. It calls the rest of `report`, but neither `html` nor `reproduce`.
"""
