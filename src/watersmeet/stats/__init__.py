"""Statistics of streams: declared by the caller, measured on rows, derived from both, or assumed and marked as such."""
