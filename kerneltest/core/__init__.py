"""Facts and small frozen values: dtypes, precisions, targets, verdicts, failures, source locations.

Every room may import it. It imports no other room, and neither JAX nor pytest.
"""
