"""Generated pages: current in the repository, and a stale one is noticed."""

from __future__ import annotations

from pathlib import Path

from tools.generate import FILES, PAGES, stale


def test_every_generated_page_is_current() -> None:
    assert stale() == []


def test_a_missing_page_and_a_changed_one_are_stale(tmp_path: Path) -> None:
    first, *others = PAGES
    for name in others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(PAGES[name]() + "\n", encoding="utf-8")
    assert stale(tmp_path) == [first, *others, *FILES]


def test_pages_are_the_same_each_time() -> None:
    for make in PAGES.values():
        assert make() == make()
