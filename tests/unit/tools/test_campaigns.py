"""The short form of every campaign of seeded trials fails nowhere."""

from __future__ import annotations

import pytest

from tools.campaigns import CAMPAIGNS
from tools.campaigns.base import Campaign
from tools.soak import run_campaign

SHORT = [campaign for campaign in CAMPAIGNS if campaign.short]
"""Others have a test of their own for CI."""


@pytest.mark.parametrize("campaign", SHORT, ids=lambda campaign: campaign.name)
def test_the_short_form_of_a_campaign_fails_nowhere(campaign: Campaign) -> None:
    ids = campaign.ids(campaign.short)
    tally = run_campaign(campaign, ids)
    assert tally.failures == []
    # An id that is no trial is passed over: a cut behind the end of what it was to cut.
    assert 0 < tally.trials <= len(ids) <= campaign.long
