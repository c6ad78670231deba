"""Ayad, Naughton: static optimization under feasibility, and drop boxes."""

from watersmeet.paper.ayad.example_1 import example_1
from watersmeet.paper.ayad.figure_4 import figure_4
from watersmeet.paper.ayad.figure_7 import figure_7

EXHIBITS = (example_1, figure_4, figure_7)
