"""Campaigns, in the order of the report; a campaign is one file here and one line below."""

from __future__ import annotations

from tools.campaigns import (
    camera,
    flips,
    forgery,
    fuzz_blob,
    fuzz_images,
    fuzz_text,
    memory,
    ota_chips,
    ota_cuts,
    ota_cycles,
    ota_headers,
    runtime,
    variation,
)
from tools.campaigns.base import Campaign

__all__ = ["CAMPAIGNS"]

CAMPAIGNS: tuple[Campaign, ...] = (
    memory.WEEK,
    memory.TRACE_CAMPAIGN,
    memory.THREADS,
    flips.CAMPAIGN,
    camera.CAMPAIGN,
    variation.VARIATION,
    runtime.CAMPAIGN,
    fuzz_blob.FUZZ_BLOB,
    fuzz_text.FUZZ_TEXT,
    fuzz_images.FUZZ_FUSES,
    fuzz_images.FUZZ_FLASH,
    ota_cuts.CUTS,
    ota_cuts.PAIRS,
    ota_chips.CHIPS,
    ota_chips.CELLS,
    ota_headers.HEADERS,
    ota_headers.FLIPS,
    ota_cycles.CYCLES,
    ota_cycles.KILL,
    forgery.FORGERY,
)
