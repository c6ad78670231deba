"""Aggregation sets over windows: the fourth paper's AS join and AS update, and the structures they use."""
