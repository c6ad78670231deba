"""Calibration: measures the weights of the cost models on this machine with the engine's kernels, and saves them."""

from watersmeet.calibration.profiles import (
    current_profile,
    default_profile,
    load_profile,
    measure_profile,
    profile_path,
    save_profile,
)

__all__ = ["current_profile", "default_profile", "load_profile", "measure_profile", "profile_path", "save_profile"]
