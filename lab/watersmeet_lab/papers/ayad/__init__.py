"""Ayad, Naughton: static optimization under feasibility, and drop boxes."""

from watersmeet_lab.papers.ayad.example_1 import example_1
from watersmeet_lab.papers.ayad.figure_4 import figure_4
from watersmeet_lab.papers.ayad.figure_7 import figure_7

EXHIBITS = (example_1, figure_4, figure_7)
