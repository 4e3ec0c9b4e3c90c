"""The host runtime of the NPU: sessions, a service over all cores, models of both under load."""

from __future__ import annotations

__all__: list[str] = []
