"""Golab, Özsu: multi-way joins of sliding windows."""

from watersmeet_lab.papers.golab.figure_2 import figure_2
from watersmeet_lab.papers.golab.figure_3 import figure_3
from watersmeet_lab.papers.golab.figure_4a import figure_4a
from watersmeet_lab.papers.golab.figure_4b import figure_4b
from watersmeet_lab.papers.golab.table_3 import table_3
from watersmeet_lab.papers.golab.table_8 import table_8
from watersmeet_lab.papers.golab.tables_5_to_7 import table_5, table_6, table_7, tables_10_and_11

EXHIBITS = (table_3, figure_2, figure_3, table_5, table_6, table_7, tables_10_and_11, table_8, figure_4a, figure_4b)
