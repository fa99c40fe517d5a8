"""What every room speaks of: dtypes and their rounding, verdicts, tiers, targets, failures, lines of source.

Nothing enters: these are facts and small frozen values, which leave as they are. Every room may call it, and it calls
none; it imports neither JAX nor pytest.
"""
