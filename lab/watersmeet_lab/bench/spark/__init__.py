"""The Spark host against Spark's own stream-stream joins, in one session and one run."""
