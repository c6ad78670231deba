"""Numba kernels: flat arrays in, row numbers out, no Python objects.

The definition of each kernel is a plain loop in the same file or package.
"""
