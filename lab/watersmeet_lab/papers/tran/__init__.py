"""Tran, Lee: aggregation joins with early aggregation."""

from watersmeet_lab.papers.tran.figure_10 import figure_10
from watersmeet_lab.papers.tran.figures_6_and_7 import figures_6_and_7
from watersmeet_lab.papers.tran.figures_8_and_9 import figures_8_and_9

EXHIBITS = (figures_6_and_7, figures_8_and_9, figure_10)
