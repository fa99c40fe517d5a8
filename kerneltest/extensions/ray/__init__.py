"""A run on the machines of a Ray cluster: the session plans, hands out jobs, and writes what nodes send.

`fleet` alone imports Ray. `node` is the other side; `jobs` knows which item is where, and `ledger` writes each record
once.
"""
