"""The queries of Tran and Lee, as the paper writes them."""

from __future__ import annotations

from itertools import chain, combinations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.sources.declarations import Sources

HOUR_US = 3_600_000_000

NETWORK = """
SELECT c.source, COUNT(*)
FROM ClinkPacket AS c [WINDOW 1 HOUR],

BlinkPacket AS b [WINDOW 1 HOUR]
WHERE c.source = b.source

AND c.destination = b.destination
AND c.id = b.id

GROUP BY c.source;
"""

AUCTION = """
SELECT a.auctionID, COUNT(b.*)
FROM Bid AS b [WINDOW 1 HOUR],

Auction AS a [WINDOW UNTIL NOW],
Person AS p

WHERE a.auctionID = b.auctionID
AND a.seller = p.personID
AND p.state= “VT”

GROUP BY a.auctionID;
"""

# The paper describes this query in prose: the monthly total calling time on international calls made from each number
# of an area code.
TELEPHONE = """
SELECT s.number, SUM(c.seconds) AS total
FROM Calls AS c [RANGE 30 DAYS], Subscribers AS s
WHERE c.caller = s.number AND s.area = 802 AND c.kind = 'international'
GROUP BY s.number
"""


def placements(*aliases: str) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(aliases, size) for size in range(len(aliases) + 1)))


def last_rows(query: str, sources: Sources, early: tuple[str, ...]) -> dict[object, object]:
    """The last row of each group: its key with its aggregate."""
    table = wm.collect(query, sources, plan=wm.plan(early=early))
    key, value, _ = table.column_names
    return dict(zip(table.column(key).to_pylist(), table.column(value).to_pylist(), strict=True))


@pytest.mark.parametrize("early", placements("c", "b"))
def test_packets_from_each_terminal_that_went_through_the_backbone(early: tuple[str, ...]) -> None:
    customer = pa.table(
        {
            "id": [1, 2, 3, 4],
            "source": ["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.1"],
            "destination": ["10.9.0.1", "10.9.0.2", "10.9.0.1", "10.9.0.1"],
            "length": [40, 1500, 40, 40],
            "time": [0, 10, 20, HOUR_US + 11],
        }
    )
    backbone = customer.slice(1).append_column("hop", pa.array([1, 1, 1]))
    streams = {"ClinkPacket": wm.stream(customer, time="time"), "BlinkPacket": wm.stream(backbone, time="time")}
    # at the last instant packet 2 has left the hour, packets 3 and 4 are inside
    assert last_rows(NETWORK, streams, early) == {"10.0.0.2": 1, "10.0.0.1": 1}


@pytest.mark.parametrize("early", placements("b", "a", "p"))
def test_bids_of_the_last_hour_on_auctions_from_vermont(early: tuple[str, ...]) -> None:
    sources: Sources = {
        "Bid": wm.stream(
            pa.table(
                {
                    "timestamp": [1, 2, 3, HOUR_US + 2],
                    "auctionID": [7, 7, 8, 7],
                    "bidderID": [1, 2, 1, 3],
                    "bidPrice": [5, 6, 7, 8],
                }
            ),
            time="timestamp",
        ),
        "Auction": wm.stream(
            pa.table({"timestamp": [0, 0, 1], "auctionID": [7, 8, 9], "seller": [1, 2, 1], "startPrice": [1, 1, 1]}),
            time="timestamp",
        ),
        "Person": wm.relation(pa.table({"personID": [1, 2], "name": ["Ann", "Bo"], "state": ["VT", "NH"]})),
    }
    assert last_rows(AUCTION, sources, early) == {7: 2}  # the bid at 1 is older than an hour, that at 2 is not


@pytest.mark.parametrize("early", placements("c", "s"))
def test_monthly_calling_time_on_international_calls_of_an_area(early: tuple[str, ...]) -> None:
    sources: Sources = {
        "Calls": wm.stream(
            pa.table(
                {
                    "ts": [0, 1, 2, 3],
                    "caller": [11, 11, 12, 13],
                    "seconds": [60, 30, 10, 99],
                    "kind": ["international", "international", "local", "international"],
                }
            ),
            time="ts",
        ),
        "Subscribers": wm.relation(pa.table({"number": [11, 12, 13], "area": [802, 802, 603]})),
    }
    assert last_rows(TELEPHONE, sources, early) == {11: 90}
