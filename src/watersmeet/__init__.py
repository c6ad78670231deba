"""Watersmeet: continuous queries that join several data streams over sliding windows."""
