"""W-join: joining several streams on a common attribute, every two rows inside a window of each other.

One algorithm per file, under the paper's name, all with the same first six arguments and the same result
(`WindowJoin`); `definition` is the law of all of them.

- `times`, `codes`: the rows of all streams, one stream after the other; rows join when their codes are equal.
- `offsets`: stream s owns the rows from `offsets[s]` to `offsets[s + 1]`.
- `old`: how many of a stream's rows, which come first, were there before this call; old and new rows are each sorted by
  time.
- `window_us`, `reach_us`: two rows of streams s and r join when they are at most `min(window_us, reach_us[s],
  reach_us[r])` apart.

One window for all pairs: every reach is the window. GCA (global conservative approach): the largest of the pairs'
windows, and the caller refines. LCA (local conservative approach): per stream the largest window of its pairs. A pair's
window is then at most the smaller of its two streams' reaches, so LCA keeps every result, and no candidate GCA would
not have; the caller refines the same way.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002).
"""
