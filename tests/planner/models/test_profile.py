"""Profiles: they survive JSON, refuse invalid values, and include the papers' weights."""

from __future__ import annotations

import json

import pytest

from watersmeet.errors import InputError
from watersmeet.planner.models.kang import PAPER_WEIGHTS
from watersmeet.planner.models.profile import PROFILES, Profile, Structure, named_profile
from watersmeet.planner.models.tran import UNIT_WEIGHTS

MEASURED = Profile(
    "this machine",
    source="calibrated by no one",
    hash=Structure(2e-9, 3e-9, lookup_s=1e-8),
    runs=Structure(1e-9, 2e-9, 5e-9),
    row_in_s=1e-8,
    match_s=2e-9,
    row_out_s=3e-8,
    batch_s=1e-4,
)


@pytest.mark.parametrize("profile", [MEASURED, *PROFILES.values()], ids=lambda profile: profile.name)
def test_a_profile_survives_json(profile: Profile) -> None:
    assert Profile.from_json(profile.to_json()) == profile
    assert json.loads(profile.to_json())["name"] == profile.name


def test_the_papers_weights_are_named_profiles() -> None:
    assert named_profile("kang-2003").kang() == PAPER_WEIGHTS
    assert named_profile("tran-unit").tran() == UNIT_WEIGHTS
    assert named_profile("ayad-example-1").row_in_s == 0.0005
    assert named_profile("golab-2003").structure("hash") == Structure(compare_s=1)
    with pytest.raises(InputError, match='no profile "mine"'):
        named_profile("mine")


def test_a_profile_gives_each_model_its_weights() -> None:
    assert MEASURED.kang(bucket_rows=4).bucket_rows == 4
    assert MEASURED.kang().hash.probe_s == 2e-9
    assert MEASURED.tran().hash_update_s == 3e-9


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ("[]", "a profile must be a JSON object"),
        ("{}", "needs a name"),
        ('{"name": ""}', "needs a name"),
        ('{"name": 3}', "the name of a profile must be text"),
        ('{"name": "x", "speed": 1}', "a profile has no speed"),
        ('{"name": "x", "match_s": "fast"}', "the weight match_s of a profile must be a number"),
        ('{"name": "x", "match_s": -1}', "match_s of a profile must be a number of at least zero"),
        ('{"name": "x", "match_s": NaN}', "match_s of a profile must be a number"),
        ('{"name": "x", "match_s": true}', "match_s of a profile must be a number"),
        ('{"name": "x", "hash": 1}', "the structure hash must be a JSON object"),
        ('{"name": "x", "hash": {"probe": 1}}', "the structure hash has no probe"),
        ('{"name": "x", "hash": {"compare_s": Infinity}}', "the weight compare_s of a structure must be a number"),
        ('{"name": "x", "hash": {"compare_s": "1"}}', "the weight compare_s of a structure must be a number"),
    ],
)
def test_a_broken_profile_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Profile.from_json(text)


def test_an_unknown_structure_is_refused_with_the_existing_ones() -> None:
    with pytest.raises(InputError, match="structures: list, hash, btree, ttree, runs"):
        MEASURED.structure("heap")
