"""From a bound query to a plan, and the plan's reasons in words."""
