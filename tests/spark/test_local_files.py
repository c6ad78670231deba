"""A local session writes files without starting processes, and with the permissions that Hadoop sets."""

from __future__ import annotations

import shutil
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from watersmeet.runtime.spark.local_files import CLASS, JAR, choose_file_system, compile_jar
from watersmeet.runtime.spark.versions import java_machine


def test_a_local_session_uses_the_class(spark: SparkSession) -> None:
    assert _open_file_system(spark).getClass().getName() == CLASS


@pytest.mark.parametrize("mode", [0o644, 0o600, 0o755, 0o070, 0o1777])
def test_files_have_the_permissions_that_were_asked_for(spark: SparkSession, tmp_path: Path, mode: int) -> None:
    hadoop = java_machine(spark).org.apache.hadoop.fs
    permission = hadoop.permission.FsPermission(hadoop.permission.FsPermission.createImmutable(mode))
    path, ours, theirs = tmp_path / "file", _open_file_system(spark), hadoop.RawLocalFileSystem()
    theirs.initialize(java_machine(spark).java.net.URI("file:///"), spark.sparkContext._jsc.hadoopConfiguration())
    found = []
    for each in (ours, theirs):
        path.touch()
        each.setPermission(hadoop.Path(str(path)), permission)
        found.append(stat.S_IMODE(path.stat().st_mode))
    assert found == [mode, mode]


def test_new_files_and_folders_have_the_permissions_of_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    hadoop = java_machine(spark).org.apache.hadoop.fs
    theirs = hadoop.LocalFileSystem()
    theirs.initialize(java_machine(spark).java.net.URI("file:///"), spark.sparkContext._jsc.hadoopConfiguration())
    found = []
    for name, each in (("ours", _open_file_system(spark)), ("theirs", theirs)):
        each.create(hadoop.Path(f"{tmp_path}/{name}/deep/file")).close()
        made = sorted((tmp_path / name).rglob("*"))
        found.append([(path.name, stat.S_IMODE(path.stat().st_mode)) for path in made])
    assert found[0] == found[1]
    assert [name for name, _ in found[0]] == ["deep", ".file.crc", "file"]


def test_the_file_system_of_the_caller_is_kept() -> None:
    assert choose_file_system({"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}) == {}


@pytest.mark.skipif(shutil.which("javac") is None, reason="no Java compiler")
def test_the_jar_is_compiled_from_the_source_next_to_it(tmp_path: Path) -> None:
    compile_jar(tmp_path / "again.jar")
    names = [zipfile.ZipFile(each).namelist() for each in (JAR, tmp_path / "again.jar")]
    assert names[0] == names[1]
    assert all(
        zipfile.ZipFile(JAR).read(name) == zipfile.ZipFile(tmp_path / "again.jar").read(name) for name in names[0]
    )


def _open_file_system(spark: SparkSession) -> Any:
    java = java_machine(spark)
    return java.org.apache.hadoop.fs.FileSystem.get(
        java.java.net.URI("file:///"), spark.sparkContext._jsc.hadoopConfiguration()
    )
