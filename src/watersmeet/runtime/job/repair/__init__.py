"""Problems of a checkpoint, and fixes where nothing is lost or doubled by them."""

from watersmeet.runtime.job.repair.finding import Finding
from watersmeet.runtime.job.repair.findings import findings

__all__ = ["Finding", "findings"]
