"""Frozen values that check themselves: expressions, windows, constraints, schemas, queries, plans.

They hold no data, parse no text and execute nothing.
"""
