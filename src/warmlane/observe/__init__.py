"""Metrics of the server, for Prometheus."""

from warmlane.observe.metrics import EngineReading, Metrics, ModelNumbers

__all__ = ["EngineReading", "Metrics", "ModelNumbers"]
