"""Buckets load neither pyspark nor a host, so that all tests of this folder run without Java."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
from watersmeet.runtime import buckets

modules = [module.name for module in pkgutil.iter_modules(buckets.__path__)]
for name in modules:
    importlib.import_module(f"{buckets.__name__}.{name}")
hosts = ("pyspark", "py4j", "watersmeet.runtime.spark", "watersmeet.runtime.embedded")
print(len(modules) > 1, [name for name in sys.modules if name.startswith(hosts)])
"""


def test_buckets_load_neither_pyspark_nor_a_host() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True []"
