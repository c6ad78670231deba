"""The Spark host: a query as a Spark DataFrame. Nothing else in the project imports pyspark, and importing this package
does not either.
"""
