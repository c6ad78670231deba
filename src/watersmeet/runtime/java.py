"""The Java that Spark needs: found before Spark is started, because what Spark says without one helps nobody."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from watersmeet.errors import InputError, abbreviate

MIN_JAVA_VERSION = 17
_TIMEOUT_S = 120

_VERSION = re.compile(r'version "(\d+)')


def check_java() -> None:
    """Refuses, with what to do, where there is no Java that Spark could start."""
    wrong = find_java_problem()
    if wrong is not None:
        raise InputError(
            wrong,
            hint="install a headless runtime (on Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME to one; "
            "--engine embedded needs no Java",
        )


def find_java_problem() -> str | None:
    """Say in one sentence what is wrong with the Java that Spark would start; None if nothing is."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if found is None:
        place = (
            f'JAVA_HOME is "{home}", and there is no bin/java in it'
            if home
            else "there is none on the PATH and JAVA_HOME is not set"
        )
        return f"Spark needs Java {MIN_JAVA_VERSION} or newer: {place}"
    wrong = _check_java_version(found)
    return None if wrong is None else f"Spark needs Java {MIN_JAVA_VERSION} or newer: {wrong}"


@cache
def _check_java_version(java: str) -> str | None:
    """Say why a Java cannot run Spark. One that does not tell its version is refused: PySpark waits forever for some
    that do not start.
    """
    try:
        answer = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            errors="replace",
        )
    except OSError as error:
        return f'"{java}" cannot be started: {error.strerror or error}'
    except subprocess.TimeoutExpired:
        return f'"{java} -version" did not answer within {_TIMEOUT_S} s'
    version = _VERSION.search(answer.stderr)
    if version is None:
        said = " ".join(answer.stderr.split())
        return f'"{java} -version" exited with code {answer.returncode} and said {abbreviate(said, 200) or "nothing"}'
    return None if int(version[1]) >= MIN_JAVA_VERSION else f'"{java}" is Java {version[1]}'
