"""The planner: from a bound query to a costed plan with its explanation."""
