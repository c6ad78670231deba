"""Seeded workloads, peer systems, and measurements of Watersmeet against them in one run."""
