"""Frozen, self-checking values: expressions, windows, constraints, schemas, queries. No data, no text parsing, no
execution.
"""
