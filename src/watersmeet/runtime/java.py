"""The Java that Spark needs: found before Spark is started, because what Spark says without one helps nobody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from watersmeet.errors import InputError

OLDEST = 17

_VERSION = re.compile(r'version "(\d+)')


def check_java() -> None:
    """Refuses, with what to do, where there is no Java that Spark could start."""
    wrong = why_no_java()
    if wrong is not None:
        raise InputError(
            wrong,
            hint="install a headless runtime (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one; "
            "--engine embedded needs no Java",
        )


def why_no_java() -> str | None:
    """What is wrong with the Java that Spark would start, in one sentence; None if nothing is."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if found is None:
        place = f'JAVA_HOME is "{home}", and there is no bin/java in it' if home else "there is none on the PATH and JAVA_HOME is not set"
        return f"Spark needs Java {OLDEST} or newer: {place}"
    major = _major(found)
    return None if major is None or major >= OLDEST else f'Spark needs Java {OLDEST} or newer: "{found}" is Java {major}'


@cache
def _major(java: str) -> int | None:
    """The major version of a Java; None where it does not say, and Spark may find out."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    version = _VERSION.search(said)
    return None if version is None else int(version[1])
