"""Seeded generators of cases: queries, tables, arrival orders and plans."""
