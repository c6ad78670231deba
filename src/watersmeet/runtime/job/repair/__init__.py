"""What can be wrong with a checkpoint, what it means, and how to mend it where there is a way back that loses and doubles nothing."""

from watersmeet.runtime.job.repair.finding import Finding
from watersmeet.runtime.job.repair.findings import findings

__all__ = ["Finding", "findings"]
