"""Numba kernels: flat arrays in, row numbers out, no Python objects. Beside each kernel stands its definition as a
plain loop.
"""
