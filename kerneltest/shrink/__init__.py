"""Shrinking: the smallest case that fails as a recorded one does.

`engine` searches: it tries simpler candidates in a fixed order and keeps those that fail in the same way. `shapes`
proposes shorter signatures with plainer dtypes and static arguments, `elements` plainer values. Shorter lengths are
preferred to plainer values, zeros to ones, ones to other numbers. The search ends when no candidate is left, or when
its time is over.
"""
