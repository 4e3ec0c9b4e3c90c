"""The runtime under random load: rounds of ``npurt soak``."""

from __future__ import annotations

from collections.abc import Sequence

from npuabi.progress import Progress
from npurt.soak import ROUND_JOBS, Failure, Totals, run_round
from tools.campaigns.base import Campaign, Tally

__all__ = ["CAMPAIGN"]

_SEED = 1
_LONG = 500


def _run(ids: Sequence[int], progress: Progress) -> Tally:
    """Run round *id* of the seed, for each id."""
    tally, totals = Tally(), Totals(seed=_SEED)
    for number in ids:
        try:
            totals.add(run_round(_SEED, number))
        except Failure as failure:
            tally.failures.append(f"{number}: {failure}")
        tally.trials += 1
        progress("rounds", tally.trials, len(ids))
    tally.figures = {
        "jobs": totals.jobs,
        "emulated seconds": round(totals.emulated_s, 1),
        **dict(totals.counts),
    }
    return tally


CAMPAIGN = Campaign(
    name="runtime",
    title=f"rounds of {ROUND_JOBS:,} emulated jobs, cancels, faults, swaps, stalled and lost cores",
    short=2,
    long=_LONG,
    run=_run,
)
