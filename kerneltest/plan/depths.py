"""How many lengths and combinations to try."""

DEPTHS = ("quick", "standard", "deep")
