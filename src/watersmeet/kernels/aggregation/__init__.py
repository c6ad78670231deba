"""Aggregation sets over windows: AS join and AS update of Tran and Lee, and the structures they use."""
