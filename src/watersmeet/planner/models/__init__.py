"""The papers' cost models as pure functions: the cost of a plan per unit of time."""
