"""The Spark host: it runs a query as a Spark DataFrame.

No other part of the product imports pyspark. Importing this package alone does not import it either, but checks that
the extra is installed.
"""

from watersmeet.extras import SPARK, require_extra

require_extra(SPARK)
