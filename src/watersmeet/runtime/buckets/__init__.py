"""Buckets: everything of the Spark host that needs no Spark, so that it is tested without Java."""
