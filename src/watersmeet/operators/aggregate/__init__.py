"""Aggregation-join queries: aggregation sets over window joins, kept up by increments and decrements."""
