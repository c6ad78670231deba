"""Forecasts against measurements: predicted CPU, rows out and state next to those of runs."""
