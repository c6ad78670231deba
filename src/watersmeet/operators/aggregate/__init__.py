"""Aggregation over window joins: aggregation sets that are maintained by increments and decrements."""
