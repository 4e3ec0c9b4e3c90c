"""Run campaigns of seeded trials: ``make soak``, ``make fuzz``.

``python -m tools.soak [NAME ...] [--group soak|fuzz] [--short | --trials N] [--replay ID]
[--json FILE]``. Prints a line for each campaign; a failure prints the id that replays it, and the
exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from npuabi.progress import progress_bar
from tools.campaigns import CAMPAIGNS
from tools.campaigns.base import Campaign, Tally

__all__ = ["main", "run_campaign"]

_SHOWN = 10


def run_campaign(campaign: Campaign, ids: Sequence[int]) -> Tally:
    """Return what the trials *ids* of *campaign* gave, with a progress bar on a terminal."""
    with progress_bar() as progress:
        return campaign.run(ids, progress)


def _chosen(names: Sequence[str], group: str | None) -> list[Campaign]:
    known = {campaign.name: campaign for campaign in CAMPAIGNS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no campaign {unknown[0]!r}: there are {', '.join(known)}")
    if names:
        return [known[name] for name in names]
    return [c for c in CAMPAIGNS if group in (None, c.group)]


def _ids(campaign: Campaign, options: argparse.Namespace) -> Sequence[int]:
    if options.replay is not None:
        return [options.replay]
    if options.trials is not None:
        return campaign.ids(options.trials)
    return campaign.ids(campaign.short if options.short else campaign.long)


def _row(campaign: Campaign, tally: Tally, seconds: float) -> dict[str, Any]:
    return {
        "campaign": campaign.name,
        "title": campaign.title,
        "trials": tally.trials,
        "failures": tally.failures,
        "figures": tally.figures,
        "seconds": round(seconds, 1),
    }


def _print(row: dict[str, Any]) -> None:
    failed = len(row["failures"])
    head = f"{row['campaign']}: {row['trials']:,} trials, {failed} failed, {row['seconds']} s"
    print(f"{head}  ({row['title']})")
    for name, value in row["figures"].items():
        print(f"    {name}: {value:,}" if isinstance(value, int) else f"    {name}: {value}")
    for story in row["failures"][:_SHOWN]:
        print(f"    FAILED {story}")
    if failed > _SHOWN:
        print(f"    and {failed - _SHOWN} more")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="campaigns; default: all")
    parser.add_argument("--group", choices=["soak", "fuzz"], help="only those of this group")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="as many trials as CI runs")
    size.add_argument("--trials", type=int, metavar="N", help="N trials spread over all")
    size.add_argument("--replay", type=int, metavar="ID", help="one trial")
    parser.add_argument("--json", metavar="FILE", help="write the rows there, too")
    options = parser.parse_args(arguments)
    rows = []
    for campaign in _chosen(options.names, options.group):
        start = time.perf_counter()
        tally = run_campaign(campaign, _ids(campaign, options))
        rows.append(_row(campaign, tally, time.perf_counter() - start))
        _print(rows[-1])
    if options.json:
        text = json.dumps({"schema": 1, "campaigns": rows}, indent=2) + "\n"
        Path(options.json).write_text(text, encoding="utf-8")
    return int(any(row["failures"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
