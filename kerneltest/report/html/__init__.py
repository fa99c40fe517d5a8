"""HTML from records."""
