"""Problems of a checkpoint, and fixes where nothing is lost or doubled by them."""

from watersmeet.checkpoint.repair.finding import Finding
from watersmeet.checkpoint.repair.findings import findings

__all__ = ["Finding", "findings"]
