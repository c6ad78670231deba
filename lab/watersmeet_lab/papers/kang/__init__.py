"""Kang, Naughton, Viglas: window joins of two streams, also with limited resources."""

from watersmeet_lab.papers.kang.figure_4 import figure_4
from watersmeet_lab.papers.kang.figures_2_and_3 import figures_2_and_3
from watersmeet_lab.papers.kang.figures_5_to_7 import figures_5_to_7
from watersmeet_lab.papers.kang.table_3 import table_3

EXHIBITS = (table_3, figures_2_and_3, figure_4, figures_5_to_7)
