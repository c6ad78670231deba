"""Planning and explaining need neither pyspark nor a JVM."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import watersmeet as wm

query = wm.sql("SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k")
about = wm.explain(query, {name: wm.stats(rate=100, distinct={"k": 10}) for name in "ab"})
assert about.feasible and str(about)
loaded = [name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")]
print("loaded", loaded)
"""


def test_import_sql_and_explain_load_no_spark() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "loaded []"
