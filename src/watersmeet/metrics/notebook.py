"""Progress bar of a run in a notebook. It disappears when the run ends.

IPython is never imported by us: a process that runs in a notebook has imported it already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from watersmeet.metrics.batch import BatchMetrics, Observer
from watersmeet.metrics.progress import RunProgress, describe_finite_progress


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook, where HTML can be displayed."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None


@contextmanager
def show_notebook_bar(total_rows: int | None) -> Iterator[Observer]:
    """Show a progress bar in the output of the current cell; the observer moves it after each batch."""
    progress = RunProgress(total_rows)
    handle = _display(progress)

    def observe(metrics: BatchMetrics) -> None:
        nonlocal progress
        progress = progress.after_batch(metrics)
        handle.update(_render(progress), raw=True)

    try:
        yield observe
    finally:
        handle.update({"text/html": "", "text/plain": ""}, raw=True)


def _display(progress: RunProgress) -> Any:
    return sys.modules["IPython"].display.display(_render(progress), raw=True, display_id=True)


def _render(progress: RunProgress) -> dict[str, str]:
    """Return the bar as HTML and as text, for front ends that show either."""
    if progress.batches:
        words = describe_finite_progress(progress)
    else:
        words = "joining" if progress.total_rows is None else f"joining {progress.total_rows:,} rows"
    share = progress.share_done
    value = "" if share is None else f' value="{share:.4f}"'  # without a value the bar moves back and forth
    return {"text/html": f"<progress max=1{value}></progress> {escape(words)}", "text/plain": words}
