"""`watersmeet demo`: replay a year of departures from New York's three airports as three streams, and join them.

When were three flights to one destination, one from each airport, more than eight hours late together? An engine
answers while the year is replayed, two million times faster than it was. A plain loop tests every combination of
flights in the busiest week, and the two must agree.
"""
