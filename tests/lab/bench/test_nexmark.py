"""The auction site's generator: proportions, order, references that exist."""

import numpy as np

from watersmeet_lab.bench.nexmark import AUCTIONS, BIDS, EVENTS, PEOPLE, NexmarkSite

SITE = NexmarkSite(events=50_000)


def test_events_come_in_nexmarks_proportions() -> None:
    sizes = [table.num_rows * EVENTS // SITE.events for table in SITE.tables().values()]
    assert sizes == [PEOPLE, AUCTIONS, BIDS]


def test_every_stream_comes_in_time_order() -> None:
    for table in SITE.tables().values():
        assert np.all(np.diff(table["ts"].to_numpy()) >= 0)


def test_bids_name_auctions_and_auctions_name_people_that_exist() -> None:
    person, auction, bid = SITE.tables().values()
    assert set(auction["seller"].to_pylist()) <= set(person["id"].to_pylist())
    assert set(bid["auction"].to_pylist()) <= set(auction["id"].to_pylist())
    assert set(bid["bidder"].to_pylist()) <= set(person["id"].to_pylist())


def test_half_of_the_bids_go_to_hot_auctions() -> None:
    hot = SITE.bids()["auction"].to_numpy() % 100 == 0
    assert 0.45 < hot.mean() < 0.55


def test_the_same_seed_gives_the_same_rows() -> None:
    assert NexmarkSite(events=5_000, seed=3).tables() == NexmarkSite(events=5_000, seed=3).tables()
    assert NexmarkSite(events=5_000, seed=3).tables() != NexmarkSite(events=5_000, seed=4).tables()
