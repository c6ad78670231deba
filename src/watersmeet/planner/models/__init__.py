"""The papers' cost models as pure functions: what a plan costs per unit of time, before anything runs."""
