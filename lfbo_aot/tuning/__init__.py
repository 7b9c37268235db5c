"""Tuning runs: devices, worker processes, measurement, the final choice."""
