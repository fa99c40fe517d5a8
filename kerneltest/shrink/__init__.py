"""shrink."""
