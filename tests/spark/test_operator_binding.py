"""Operators bind as in Spark SQL, so a condition keeps its meaning when a query moves from there."""

from __future__ import annotations

from random import Random
from typing import Any

from pyspark.sql import SparkSession

from watersmeet.algebra.expressions import (
    And,
    Arithmetic,
    Between,
    Comparison,
    Expr,
    In,
    IsNull,
    Like,
    Negate,
    Not,
    Or,
)
from watersmeet.algebra.render import format_expression
from watersmeet.sql.grammar import ExpressionParser
from watersmeet.sql.tokens import tokenize

# `||` is missing: Spark binds it like +, we bind it looser, as PostgreSQL does.
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC = ("+", "-", "*", "/", "%")
TESTS = ("IS NULL", "IN (1, 2)", "NOT IN (x)", "LIKE 'a%'", "NOT LIKE 'b'", "BETWEEN 1 AND x + 1")
CHAINS = 300


def test_a_chain_of_operators_means_the_same_in_spark(spark: SparkSession) -> None:
    for seed in range(CHAINS):
        text = generate_condition(Random(seed))
        ours = parenthesize(ExpressionParser(tokenize(text), text).parse_expression())
        assert parse_in_spark(spark, text) == parse_in_spark(spark, ours), f"{text} is parsed as {ours}"


def generate_condition(rng: Random) -> str:
    """Return names joined by operators, without a single parenthesis around them."""
    return join_by(rng, ("AND", "OR"), [generate_test(rng) for _ in range(rng.randint(1, 3))])


def generate_test(rng: Random) -> str:
    sums = [generate_sum(rng) for _ in range(rng.randint(1, 3))]
    return rng.choice(("", "NOT ")) + join_by(rng, COMPARISONS, sums) + rng.choice(("", f" {rng.choice(TESTS)}"))


def generate_sum(rng: Random) -> str:
    return join_by(rng, ARITHMETIC, [rng.choice(("", "- ")) + rng.choice("xyz") for _ in range(rng.randint(1, 4))])


def join_by(rng: Random, operators: tuple[str, ...], parts: list[str]) -> str:
    return parts[0] + "".join(f" {rng.choice(operators)} {part}" for part in parts[1:])


def parse_in_spark(spark: SparkSession, text: str) -> str:
    """Return the tree that Spark's own parser builds."""
    session: Any = spark
    return str(session._jsparkSession.sessionState().sqlParser().parseExpression(text).toJSON())


def parenthesize(expr: Expr) -> str:
    """Return the text of an expression with parentheses around every operation."""
    match expr:
        case And(args) | Or(args):
            word = " AND " if isinstance(expr, And) else " OR "
            text = word.join(parenthesize(arg) for arg in args)
        case Comparison(op, left, right) | Arithmetic(op, left, right):
            text = f"{parenthesize(left)} {op} {parenthesize(right)}"
        case Not(arg):
            text = f"NOT {parenthesize(arg)}"
        case Negate(arg):
            text = f"- {parenthesize(arg)}"
        case IsNull(arg):
            text = f"{parenthesize(arg)} IS NULL"
        case In(arg, options):
            text = f"{parenthesize(arg)} IN ({', '.join(parenthesize(each) for each in options)})"
        case Like(arg, pattern):
            text = f"{parenthesize(arg)} LIKE '{pattern}'"
        case Between(arg, low, high):
            text = f"{parenthesize(arg)} BETWEEN {parenthesize(low)} AND {parenthesize(high)}"
        case _:
            text = format_expression(expr)
    return f"({text})"
