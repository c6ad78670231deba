"""Vectorized evaluation of bound expressions on Arrow columns.

The binder has written every coercion, so no type is guessed here. Each kind of node has one function, and `evaluator`
holds the table of them. The nodes document their own meaning (`watersmeet.algebra.expressions`).
"""

from watersmeet.operators.expressions.conjunctions import EarlyTest, all_true, evaluate_or_null, maybe_true
from watersmeet.operators.expressions.evaluator import evaluate, is_true

__all__ = ["EarlyTest", "all_true", "evaluate", "evaluate_or_null", "is_true", "maybe_true"]
