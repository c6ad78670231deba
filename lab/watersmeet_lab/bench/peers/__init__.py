"""The systems we are measured beside."""
