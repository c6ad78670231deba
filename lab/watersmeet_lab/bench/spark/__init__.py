"""The Spark host beside Spark's own stream-stream joins, in one session and one run."""
