"""Calibration: the weights of the cost models, measured on the machine at hand with the engine's own kernels, and kept
for later runs.
"""

from watersmeet.calibration.calibrate import calibrated
from watersmeet.calibration.store import current, default_profile, load, profile_path, save

__all__ = ["calibrated", "current", "default_profile", "load", "profile_path", "save"]
