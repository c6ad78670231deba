"""The window join: one operator for joins of n inputs.

Its only state is the base windows. It stores no intermediate results.
"""
