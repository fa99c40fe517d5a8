"""Facts and small frozen values that every room uses: dtypes, precisions, targets, verdicts, failures, source locations.

It imports no other room, and neither JAX nor pytest.
"""
