"""Metrics of the server, for Prometheus."""

from warmlane.observe.metrics import Metrics, ModelNumbers

__all__ = ["Metrics", "ModelNumbers"]
