"""`watersmeet demo`: join every departure from New York's three airports in 2013, as three streams.

Which destinations were served from all three airports, with at most 15 minutes from one airport to the next? An engine
computes the result for the whole year. A plain loop tests every combination of flights in the busiest hours, and the
two must agree.
"""
