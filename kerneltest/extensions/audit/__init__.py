"""extensions/audit."""
