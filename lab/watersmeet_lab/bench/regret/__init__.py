"""How far the chosen plan is from the best one: a fixed suite of workloads, every plan of the space measured."""
