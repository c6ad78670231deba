"""Tests of the oracle against hand-computed results."""
