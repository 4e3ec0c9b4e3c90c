"""Every error code is explained, completely and in house style, and can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from npuabi.errors import ErrorCode
from npuabi.explain import GROUPS, as_dict, code_named, errors_page, lines

ROOT = Path(__file__).parents[3]


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name.lower())
def test_a_code_has_all_its_facts_in_house_style(code: ErrorCode) -> None:
    for words in (code.text, code.remedy, code.causes):
        assert len(words) >= 8
        assert not words.endswith(".")
        assert words[0].islower() or words.split()[0].isupper()
    assert code & ~0xF in GROUPS
    assert all(fact for fact in as_dict(code).values())
    path, _, anchor = code.page.partition("#")
    assert (ROOT / path).is_file(), f"{code.name} points to {path}, which is not there"
    assert not anchor or anchor in anchors(ROOT / path), f"{path} has no heading {anchor}"


def test_the_reasons_of_two_codes_differ() -> None:
    texts = [code.text for code in ErrorCode]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("word", ["known_answer", "KNOWN_ANSWER", "known-answer", "0x46", "70"])
def test_a_code_is_found_by_name_and_number(word: str) -> None:
    assert code_named(word) is ErrorCode.KNOWN_ANSWER


@pytest.mark.parametrize(
    ("word", "hint"), [("known_anwser", "known_answer"), ("0xff", "lists all"), ("", "lists all")]
)
def test_a_code_that_there_is_not_gives_a_hint(word: str, hint: str) -> None:
    with pytest.raises(LookupError, match=hint):
        code_named(word)


def test_the_page_and_the_text_hold_every_fact() -> None:
    page = errors_page()
    for code in ErrorCode:
        text = "\n".join(lines(code))
        for fact in (code.text, code.remedy, code.causes):
            assert fact in page
            assert fact in text
        assert code.page in text
