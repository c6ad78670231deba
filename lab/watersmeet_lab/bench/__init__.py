"""Seeded workloads, peers, and measurements of both in one run."""
