"""Seeded workloads that both the benchmarks and the papers' reports run.

The same seed gives the same rows on every machine.
"""
