"""The Java that Spark needs: found before Spark is started, because what Spark says without one helps nobody."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from watersmeet.errors import InputError


def check_java() -> str:
    """The path of the Java that Spark would start; refused, with what to do, where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if found is None:
        place = f'JAVA_HOME is "{home}", and there is no bin/java in it' if home else "there is none on the PATH and JAVA_HOME is not set"
        raise InputError(
            f"Spark needs Java 17 or newer: {place}",
            hint="install a headless runtime (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one; "
            "--engine embedded, the default, needs no Java",
        )
    return found
