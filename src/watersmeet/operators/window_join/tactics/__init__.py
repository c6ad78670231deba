"""Tactics: the algorithms that find the matches of a meet, each under the name its paper gave it.

The driver fixes which rows are old and which are new; a tactic yields every combination with at least one new row
exactly once.
"""
