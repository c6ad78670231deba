"""The profile in use: saved atomically, found again, refused if damaged; the shipped one if none was saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.calibration import current_profile, default_profile, load_profile, profile_path, save_profile
from watersmeet.errors import InputError
from watersmeet.planner.models.profile import STRUCTURES, Profile, Structure

MINE = Profile("calibrated", source="measured on mine, 2026-01-02", hash=Structure(1e-9, 2e-8, 3e-8), row_in_s=4e-9)


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def test_a_saved_profile_is_the_one_in_use(configuration: Path) -> None:
    assert load_profile() is None
    assert current_profile() == default_profile()
    assert save_profile(MINE) == configuration / "watersmeet" / "profile.json"
    assert load_profile() == current_profile() == MINE
    save_profile(default_profile())
    assert current_profile() == default_profile()
    assert [each.name for each in (configuration / "watersmeet").iterdir()] == ["profile.json"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "must be JSON"),
        (b'{"name": "calib', "must be JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"name": "calibrated", "hash": {"compare_s": -1}}', "at least zero"),
        (b'{"name": "calibrated", "speed": 1}', "has no speed"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"name": "paper", "unit": "comparisons"}', "not in seconds"),
    ],
)
def test_a_damaged_file_is_refused_with_its_path_and_what_to_do(content: bytes, reason: str) -> None:
    path = save_profile(MINE)
    path.write_bytes(content)
    with pytest.raises(InputError, match=reason) as refused:
        current_profile()
    assert str(path) in str(refused.value)
    assert "watersmeet calibrate" in str(refused.value)


def test_unreadable_and_unwritable_profiles_are_reported(configuration: Path) -> None:
    profile_path().mkdir(parents=True)
    with pytest.raises(InputError, match="is a directory"):
        load_profile()
    with pytest.raises(InputError, match="cannot be saved"):
        save_profile(MINE)
    assert [each.name for each in (configuration / "watersmeet").iterdir()] == ["profile.json"]


def test_without_a_configuration_directory_the_home_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CONFIG_HOME", unset)
        assert profile_path() == tmp_path / ".config" / "watersmeet" / "profile.json"


def test_the_shipped_profile_has_every_structure_and_names_its_machine() -> None:
    shipped = default_profile()
    assert (shipped.name, shipped.unit) == ("default", "s")
    assert "measured on" in shipped.source
    assert all(shipped.structure(kind).lookup_s > 0 and shipped.structure(kind).compare_s > 0 for kind in STRUCTURES)
    assert shipped.batch_s > shipped.row_in_s > 0
