"""Campaigns, in the order of the report; a campaign is one file here and one line below."""

from __future__ import annotations

from tools.campaigns import camera, flips, fuzz_blob, fuzz_text, memory
from tools.campaigns.base import Campaign

__all__ = ["CAMPAIGNS"]

CAMPAIGNS: tuple[Campaign, ...] = (
    memory.WEEK,
    memory.TRACE_CAMPAIGN,
    memory.THREADS,
    flips.CAMPAIGN,
    camera.CAMPAIGN,
    fuzz_blob.FUZZ_BLOB,
    fuzz_text.FUZZ_TEXT,
)
