"""Vectorised evaluation of bound expressions on Arrow columns.

The binder has spelled out every coercion, so nothing here guesses a type. Each kind of node has one function;
`evaluator` holds the table of them. What the nodes mean is written at the nodes (`watersmeet.algebra.expressions`).
"""

from watersmeet.operators.expressions.conjunctions import EarlyTest, all_true, evaluate_or_null, maybe_true
from watersmeet.operators.expressions.evaluator import evaluate, is_true

__all__ = ["EarlyTest", "all_true", "evaluate", "evaluate_or_null", "is_true", "maybe_true"]
