"""The SQL front end: query text to `Query` (`parsing`), and a `Query` with schemas to `BoundQuery` (`binder`)."""
