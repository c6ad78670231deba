"""`watersmeet demo`: replay a year of departures from New York's three airports as three streams, and join them.

Which aircraft left from all three airports within a week? An engine answers while the year is replayed, three million
times faster than it was. A plain loop tests every combination of departures, and the two must agree.
"""
