"""W-join: join several streams on a common attribute, every two rows inside a window of each other.

There is one algorithm per file, under the paper's name. All have the same first six arguments and the same result
(`WindowJoinResult`); `window_join_definition` is the law of all of them.

- `times`, `codes`: the rows of all streams, stream after stream; rows join when their codes are equal.
- `offsets`: stream s owns the rows from `offsets[s]` to `offsets[s + 1]`.
- `old`: the number of a stream's rows that existed before this call. They come first. Old and new rows are each sorted
  by time.
- `window_us`, `reach_us`: two rows of streams s and r join when they are at most `min(window_us, reach_us[s],
  reach_us[r])` apart.

With one window for all pairs, every reach is the window. GCA (global conservative approach) uses the largest of the
pairs' windows, and the caller refines the results. LCA (local conservative approach) uses, per stream, the largest
window of its pairs. A pair's window is then at most the smaller of its two streams' reaches. So LCA keeps every result,
has no candidate that GCA does not have, and the caller refines the same way.

References: Hammad, Aref, Elmagarmid, "Joining Multiple Data Streams with Window Constraints" (2002).
"""
