"""Findings shown again.

While a run goes on, a finding and its item enter `script.saved`, and a script beside the saved inputs leaves; its
text is that of `standalone` or `rejudge`. Later a run's folder and the id of a case enter `again.again`, and a new
record leaves. Names in records are imported only from suites, and never become code. It calls `run` and the rooms
before it.
"""
