"""Profiles of this machine: measure one, save it, and load the one in use.

The profile in use is the one saved in the configuration directory of the user, or else the one shipped with the
package. Every weight is measured with the kernels and steps that run queries.

References: Kang, Naughton, Viglas, "Evaluating Window Joins over Unbounded Streams", section 4.2, "Estimating the
Weight Factors".
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from watersmeet.calibration import aggregation, batch_overhead, expressions, structures
from watersmeet.errors import InputError
from watersmeet.files import read_text_file
from watersmeet.operators.allocator import keep_freed_memory
from watersmeet.planner.models.profile import Profile, Structure

_REPEATS, _QUICK_REPEATS = 7, 3
_CPU_INFO = Path("/proc/cpuinfo")
_SHIPPED = "default_profile.json"
_WHAT_TO_DO = "run `watersmeet calibrate` to measure this machine again, or delete the file to use the shipped profile"


def measure_profile(progress: Callable[[str], None] | None = None, quick: bool = False) -> Profile:
    """Measure the weights of this machine, in seconds of CPU time.

    `quick` measures fewer points in a few seconds and is less exact. `progress` is called with the name of each step.
    `group_s` of Tran and Lee stays zero: the weights `early` measure our aggregation sets.
    """
    report = progress or (lambda _: None)
    repeats = _QUICK_REPEATS if quick else _REPEATS

    def measure_structure(kind: str) -> Structure:
        probes, updates = structures.probe_loads(kind, quick=quick), structures.update_loads(kind, quick=quick)
        report(f"{kind}: {len(probes)} loads that probe, {len(updates)} that update")
        probed = [structures.measure_probes(kind, load, repeats) for load in probes]
        return structures.fit_structure(probed, [structures.measure_updates(kind, load, repeats) for load in updates])

    keep_freed_memory()
    of_list, of_hash, of_btree, of_ttree = (measure_structure(kind) for kind in structures.INDEXES)
    report("runs: build and probe")
    of_runs = structures.fit_run_weights(structures.measure_run_points(repeats, quick=quick))
    report("whole batches: rows in, predicates, matches, rows out")
    batch_weights = batch_overhead.fit_batch_weights(batch_overhead.measure_batch_points(repeats, quick=quick), of_runs)
    report("whole batches of nested loops, predicates on candidates, counted rows")
    loop_weights = batch_overhead.measure_loop_weights(
        {"list": of_list, "hash": of_hash}, batch_weights, repeats, quick=quick
    )
    report("expressions by kind")
    expression_costs = expressions.measure_expression_costs(repeats, quick=quick)
    report("aggregations over a join, with and without early aggregation")
    named = {
        **asdict(batch_weights),
        **asdict(loop_weights),
        "expressions": expression_costs,
        "early": aggregation.measure_aggregation_weights(repeats, quick=quick),
    }
    return Profile("calibrated", "s", _source(quick=quick), of_list, of_hash, of_btree, of_ttree, of_runs, **named)


def _source(*, quick: bool) -> str:
    today = dt.datetime.now(dt.UTC).date().isoformat()
    return f"{'quickly ' if quick else ''}measured on {cpu_name()}, {today}"


def cpu_name() -> str:
    """Return the model name of the processor, or its architecture if the system does not report one."""
    lines = _CPU_INFO.read_text(encoding="utf-8", errors="replace").splitlines() if _CPU_INFO.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine() or "an unnamed processor"


def current_profile() -> Profile:
    """Return the saved profile, or the shipped one if none was saved."""
    return load_profile() or default_profile()


def default_profile() -> Profile:
    """Return the profile shipped with the package; its `source` names the machine it was measured on."""
    return Profile.from_json(resources.files(__package__).joinpath(_SHIPPED).read_text(encoding="utf-8"))


def load_profile() -> Profile | None:
    """Return the saved profile, or None if there is none. Refuse a file that is not a profile; never ignore it."""
    path = profile_path()
    try:
        text = read_text_file(path, "the saved profile")
    except InputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise InputError(error.message, hint=_WHAT_TO_DO) from error
    try:
        profile = Profile.from_json(text)
    except InputError as error:
        raise InputError(f'the saved profile "{path}" is damaged: {error.message}', hint=_WHAT_TO_DO) from error
    if profile.unit != "s":
        raise InputError(f'the saved profile "{path}" is not in seconds but in "{profile.unit}"', hint=_WHAT_TO_DO)
    return profile


def save_profile(profile: Profile) -> Path:
    """Save the profile atomically where `load_profile` finds it; return the path."""
    path = profile_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, profile.to_json())
    except OSError as error:
        raise InputError(
            f'the profile cannot be saved as "{path}": {error.strerror or error}',
            hint="set XDG_CONFIG_HOME to a directory you can write to",
        ) from error
    return path


def profile_path() -> Path:
    """Return `watersmeet/profile.json` in XDG_CONFIG_HOME, which must be absolute to count, or in ~/.config."""
    configured = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    try:
        directory = configured if configured.is_absolute() else Path.home() / ".config"
    except RuntimeError as error:
        raise InputError(
            "there is no home directory to save a profile in", hint="set XDG_CONFIG_HOME to a directory"
        ) from error
    return directory / "watersmeet" / "profile.json"


def _replace(path: Path, text: str) -> None:
    """Write a temporary file and rename it, so that a reader sees the old profile or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
