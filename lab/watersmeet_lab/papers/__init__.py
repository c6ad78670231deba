"""The five papers' tables and figures, out of the cost model and out of our operators, with a verdict for each of their
claims.
"""
