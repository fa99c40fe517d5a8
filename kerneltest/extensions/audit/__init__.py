"""The audit of a code base: its functions that reach a Pallas call, and which of them have a pairing."""
