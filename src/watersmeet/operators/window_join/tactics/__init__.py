"""Tactics: the algorithms that find the matches of a window join, each under the name its paper gave it.

The driver decides which rows are old and which are new. A tactic yields every match with at least one new row exactly
once.
"""
