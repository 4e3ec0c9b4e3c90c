"""Names and messages cannot act upon a terminal."""

from __future__ import annotations

import pytest

from npuabi.container import pack_symbols
from npuabi.text import visible

ACTING = ["\0", "\n", "\x1b[31m", "\x7f", "\x9b2J", "\u202e", "\u2028", "\ud800"]


@pytest.mark.parametrize("name", ACTING)
def test_no_symbol_holds_what_a_terminal_acts_upon(name: str) -> None:
    with pytest.raises(ValueError, match="no control characters"):
        pack_symbols([f"a{name}b"])


@pytest.mark.parametrize("text", ["é", "日本語", "😀", "a b", "a/b\\c", "\xa0"])
def test_other_text_is_left_alone(text: str) -> None:
    assert visible(text) == text
    assert pack_symbols([text])[1][text] == 1
