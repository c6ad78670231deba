"""Workers whose Python cannot run a query are refused with one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import watersmeet as wm
from watersmeet.runtime.spark import python_steps
from watersmeet.runtime.spark.python_steps import WorkerPython, explain_failure, local_directories, refuse_worker

CLUSTER = "spark://host:7077"


def test_a_worker_without_the_package_is_named_with_its_python() -> None:
    with pytest.raises(wm.InputError) as refused:
        refuse_worker(WorkerPython("/usr/bin/python3", None, "No module named 'watersmeet'", ()), CLUSTER)
    assert (
        refused.value.message
        == "the Python of Spark's workers, /usr/bin/python3, cannot import watersmeet: No module named 'watersmeet'"
    )
    assert 'pip install "watersmeet[spark]"' in (refused.value.hint or "")


def test_a_worker_with_another_version_is_refused() -> None:
    with pytest.raises(
        wm.InputError, match=rf"/usr/bin/python3, has watersmeet 0\.0\.9, and this process {wm.__version__}"
    ):
        refuse_worker(WorkerPython("/usr/bin/python3", "0.0.9", "", ()), CLUSTER)


def test_a_worker_with_this_version_is_accepted() -> None:
    refuse_worker(WorkerPython("/usr/bin/python3", wm.__version__, "", ()), CLUSTER)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Error from python worker:\n  /usr/bin/python3: Error while finding module specification for "
            "'watersmeet.runtime.spark.daemon' (ModuleNotFoundError: No module named 'watersmeet')",
            r"/usr/bin/python3, cannot import watersmeet: No module named 'watersmeet'",
        ),
        (
            "ModuleNotFoundError: No module named 'pyarrow'\n at org",
            r"python3, cannot import watersmeet: No module named 'pyarrow'",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11.\n"
            "Please check",
            r"python3, is not the driver's, .*different version: 3\.9 than",
        ),
        ('java.io.IOException: Cannot run program "pythn": error=2', r"python3, cannot be started"),
    ],
)
def test_a_message_of_spark_about_the_workers_python_is_explained(message: str, expected: str) -> None:
    explained = explain_failure(message, "python3", CLUSTER)
    assert explained is not None
    with pytest.raises(wm.InputError, match=expected):
        raise explained


def test_other_failures_are_not_explained() -> None:
    assert explain_failure("Job aborted due to stage failure: OutOfMemoryError", "python3", CLUSTER) is None


def test_the_check_runs_in_workers_without_this_package(tmp_path: Path) -> None:
    """A Python without the package runs the check: site packages are off, and only the pickle module is on the path."""
    (tmp_path / "function.pickle").write_bytes(cloudpickle.dumps(python_steps._describe_by_value()))  # type: ignore[no-untyped-call] # it has no types
    library = Path(cloudpickle.__file__).parents[2]
    script = (
        f"import sys, pickle; sys.path.append({str(library)!r})\n"
        "from pyspark import cloudpickle\n"
        f"sys.path.remove({str(library)!r})\n"
        "print(next(pickle.load(open('function.pickle', 'rb'))([])))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-E", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    executable, version, problem, _ = eval(ran.stdout)
    assert executable
    assert version is None
    assert problem == "No module named 'watersmeet'"


def test_only_directories_of_this_machine_are_cleaned(tmp_path: Path) -> None:
    here, elsewhere = str(tmp_path), str(tmp_path / "on another machine")
    workers = tuple(WorkerPython("python3", wm.__version__, "", (each,)) for each in (here, elsewhere, here))
    assert local_directories(workers) == (tmp_path,)
