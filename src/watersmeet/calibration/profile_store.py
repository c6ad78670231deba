"""The profile in use: the one saved in the user's configuration directory, or the one shipped with the package."""

from __future__ import annotations

import os
import tempfile
from importlib import resources
from pathlib import Path

from watersmeet.errors import InputError
from watersmeet.files import read_text_file
from watersmeet.planner.models.profile import Profile

_SHIPPED = "default_profile.json"
_WHAT_TO_DO = "run `watersmeet calibrate` to measure this machine again, or delete the file to use the shipped profile"


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
