"""The tensor's life: every legal step leads where the table says, every other one is refused."""

from __future__ import annotations

import itertools

import pytest

from npurt.errors import LifecycleError
from npurt.lifecycle import OWNERS, TRANSITIONS, Lifecycle, Owner, State, Step

LEGAL = {(row.source, row.step, row.by): row.target for row in TRANSITIONS}
ALL = list(itertools.product(State, Step, Owner))


def test_the_table_has_one_row_a_step_and_reaches_every_state() -> None:
    assert len(LEGAL) == len(TRANSITIONS)
    assert {row.target for row in TRANSITIONS} | {State.HOST_OWNED} == set(State)
    assert OWNERS.keys() == set(State)
    assert not [row for row in TRANSITIONS if row.source is State.RELEASED]


def test_the_application_touches_nothing_that_is_not_its_own_or_done() -> None:
    rows = [row for row in TRANSITIONS if row.by is Owner.APPLICATION]
    assert {row.source for row in rows if OWNERS[row.source] is not Owner.APPLICATION} == {
        State.DONE
    }


def test_every_step_that_is_not_in_the_table_is_an_error_that_names_owner_and_state() -> None:
    refused = 0
    for state, step, by in ALL:
        life = Lifecycle("tensor 'x'", state)
        if (state, step, by) in LEGAL:
            life.take(step, by)
            assert life.state is LEGAL[state, step, by]
            assert life.owner is OWNERS[life.state]
            continue
        refused += 1
        with pytest.raises(LifecycleError) as error:
            life.take(step, by)
        text = str(error.value)
        assert f"tensor 'x' is {state} and belongs to the {OWNERS[state]}" in text
        assert f"the {by} may not {step} it" in text
        assert life.state is state
    assert refused == len(ALL) - len(TRANSITIONS)


def test_a_step_that_depends_on_the_state_is_not_taken_from_another() -> None:
    life = Lifecycle("t", State.DONE)
    assert not life.take_from(State.QUEUED, Step.START, Owner.FIRMWARE)
    assert life.take_from(State.DONE, Step.ACCEPT, Owner.APPLICATION)
    assert life.state is State.HOST_OWNED
