"""Reproductions of the five papers' tables and figures, with a verdict for each of their claims."""
