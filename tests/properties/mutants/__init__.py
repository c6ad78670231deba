"""Mutants of the engine, and the checks that must catch them."""
