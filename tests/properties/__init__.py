"""Properties of every query: generated cases against the oracle, and relations between runs."""
