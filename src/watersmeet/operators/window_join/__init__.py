"""The meet operator: one operator for every window join. n inputs, base windows as its only state, no stored
intermediate results.
"""
