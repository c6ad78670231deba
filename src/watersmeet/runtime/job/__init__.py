"""Queries over files in this process: finite ones piece by piece, growing directories batch by batch with a checkpoint.

A batch of a growing directory is chosen, run, written and committed, in this order. Its files are recorded before any row is read, its rows
go into a file named after the batch, and the state is written last: a process that is killed anywhere in between runs the same batch
over the same files again and writes the same file again.
"""
