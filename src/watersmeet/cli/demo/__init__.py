"""The main job on real data: every departure from New York's three airports in 2013, as three streams.

Which destinations were served from all three airports within a quarter of an hour of each other? The answer over the
whole year is computed by an engine; for the busiest hours of it every combination of flights is looked at one by one,
and the two must agree.
"""
