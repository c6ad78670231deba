"""The local file system of Spark's Java process: files of checkpoints are written without starting processes.

Hadoop starts `chmod` for every file that it creates in a local directory, unless its native library is installed.
`InProcessLocalFileSystem` sets the permissions itself. It is a class of ours, in a jar next to this module, and only
sessions that `wm.session()` starts on this machine use it.

`python -m watersmeet.runtime.spark.local_files` compiles the class again.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from watersmeet.runtime.spark.versions import has_java_class, is_java_running

CLASS = "watersmeet.InProcessLocalFileSystem"
JAR = Path(__file__).parent / "java" / "local-files.jar"
SOURCE = JAR.parent / "InProcessLocalFileSystem.java"
_SETTING = "spark.hadoop.fs.file.impl"
_CLASS_PATH = "spark.driver.extraClassPath"
#: Time of all entries of the jar, so that the same source gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def choose_file_system(settings: Mapping[str, object]) -> dict[str, str]:
    """Return the settings by which a local session uses our file system, unless the caller has chosen one.

    The class path of a Java process that already runs cannot change. One without our class keeps that of Hadoop.
    """
    if _SETTING in settings or (is_java_running() and not has_java_class(CLASS)):
        return {}
    if is_java_running():
        return {_SETTING: CLASS}
    others = str(settings.get(_CLASS_PATH, ""))
    return {_SETTING: CLASS, _CLASS_PATH: f"{JAR}:{others}" if others else str(JAR)}


def compile_jar(jar: Path) -> None:
    """Compile the source against the jars of PySpark, for the oldest Java that PySpark 4 runs on."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars" / "*"
    with tempfile.TemporaryDirectory() as folder:
        command = ["javac", "--release", "17", "-g:none", "-cp", str(jars), "-d", folder, str(SOURCE)]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(folder).rglob("*.class")):
                archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder)), _EPOCH), path.read_bytes())


if __name__ == "__main__":
    compile_jar(JAR)
