"""Model cards as files."""

import pytest

from keras_transformer.files.model_card import (
    CARD_JSON,
    CARD_MARKDOWN,
    card_as_markdown,
    read_card,
    write_card,
)

CARD = {"data": {"training": "a|b\n<img src=x> `c` [d](e)"}, "license": {"license": "мир"}}


def test_a_card_is_read_as_it_was_written(tmp_path):
    write_card(tmp_path, CARD)
    assert read_card(tmp_path) == CARD
    assert (tmp_path / CARD_MARKDOWN).read_text("utf-8") == card_as_markdown(CARD)


def test_markdown_shows_texts_as_they_are():
    lines = card_as_markdown(CARD).splitlines()
    assert lines[0] == "# Model card" and lines.count("|---|---|") == 2
    assert "| training | a\\|b &lt;img src=x&gt; \\`c\\` \\[d\\](e) |" in lines


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": {"b": 1}}', "[" * 100_000])
def test_a_file_that_is_no_card_says_nothing(tmp_path, content):
    (tmp_path / CARD_JSON).write_text(content)
    assert read_card(tmp_path) == {}
    assert read_card(tmp_path / "missing") == {}
