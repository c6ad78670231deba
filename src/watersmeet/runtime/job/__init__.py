"""Queries run over files in this process: finite ones piece by piece, growing directories batch by batch with a checkpoint.

A batch of a growing directory is decided, run, put out and committed, in this order. What was decided is written down before any row is
read, the rows go into a file named after the batch, and the state is written last: a process that is killed anywhere in between runs
the same batch over the same files again and writes the same file anew.
"""
