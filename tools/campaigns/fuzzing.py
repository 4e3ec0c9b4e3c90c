"""What the fuzzers share: how a trial is judged and how trials are counted.

A trial may end in the project's own refusal or in a verdict. Any other exception is a failure, and
so is a trial that takes more than a second of CPU: a machine that has other things to do makes
nobody wrong.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from npuabi.errors import AbiError
from npuabi.progress import Progress
from npuc.diagnostics import CompileError
from tools.campaigns.base import Tally

__all__ = ["Verdict", "counted", "judged"]

Verdict = tuple[str, str]
"""What became of the input, and what is wrong with that, or ""."""

_BUDGET_S = 1.0


def judged(verdict: Callable[[], Verdict]) -> Verdict:
    """Return what *verdict* gives, with refusals as outcomes and other exceptions as failures."""
    start = time.perf_counter()
    found = _outcome(verdict)
    if found[1] or time.perf_counter() - start <= _BUDGET_S:
        return found
    # Reading the CPU's clock is slow: it is asked only where the wall's says that it may matter.
    start = time.process_time()
    outcome, _ = _outcome(verdict)
    seconds = time.process_time() - start
    return outcome, f"took {seconds:.2f} s of CPU" if seconds > _BUDGET_S else ""


def _outcome(verdict: Callable[[], Verdict]) -> Verdict:
    try:
        return verdict()
    except AbiError as error:
        return f"refused {error.code.name.lower()}", ""
    except CompileError:
        return "refused", ""
    except Exception as error:  # whatever it is, it is what is looked for
        return "exception", f"{type(error).__name__}: {error}"


def counted(
    ids: Sequence[int], progress: Progress, what: str, trial: Callable[[int], Verdict]
) -> Tally:
    """Run *trial* for each id; the figures are how often there was which outcome."""
    tally, outcomes = Tally(), Counter[str]()
    for number in ids:
        outcome, wrong = trial(number)
        outcomes[outcome] += 1
        if wrong:
            tally.failures.append(f"{number}: {wrong}")
        tally.trials += 1
        progress(what, tally.trials, len(ids))
    tally.figures = dict(outcomes.most_common())
    return tally
