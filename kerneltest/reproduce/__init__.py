"""Reproduction of findings; it executes kernels, which `report` never does.

During a run, `script_writer` saves the inputs of a finding and writes a script next to them, from the text of
`standalone` or `rejudge`. Later, `rerun` judges the saved inputs again for `kerneltest repro`. Names in records are
untrusted: they are imported only from suites in the current project, and never become code.
"""
