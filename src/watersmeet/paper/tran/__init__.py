"""Tran, Lee: aggregation joins with early aggregation."""

from watersmeet.paper.tran.figure_10 import figure_10
from watersmeet.paper.tran.figures_6_and_7 import figures_6_and_7
from watersmeet.paper.tran.figures_8_and_9 import figures_8_and_9

EXHIBITS = (figures_6_and_7, figures_8_and_9, figure_10)
