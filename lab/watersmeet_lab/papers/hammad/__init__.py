"""Hammad, Aref, Elmagarmid: joining several streams with window constraints."""

from watersmeet_lab.papers.hammad.figure_9ab import figure_9a, figure_9b
from watersmeet_lab.papers.hammad.figure_9c import figure_9c
from watersmeet_lab.papers.hammad.figure_13 import figure_13
from watersmeet_lab.papers.hammad.figure_14 import figure_14
from watersmeet_lab.papers.hammad.figures_7_and_8 import figures_7_and_8

EXHIBITS = (figures_7_and_8, figure_9a, figure_9b, figure_9c, figure_13, figure_14)
