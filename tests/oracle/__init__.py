"""The oracle against hand-made timelines."""
