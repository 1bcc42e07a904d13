import math

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers import tokenizer_ja_mecab

from keras_transformer.translation.evaluation import bleu, chrf

HYPOTHESES = ["the black cat sat on a mat .", "two dogs run in the snow ."]
REFERENCES = ["the cat sat on the mat .", "two dogs run in the snow ."]


def test_bleu_equals_the_formula_worked_out_by_hand():
    # matching n-grams of `HYPOTHESES`, n = 1..4, over all of them: 8 and 7 words a sentence
    precisions = [13 / 15, 9 / 13, 6 / 11, 4 / 9]
    brevity_penalty = 1.0  # 15 words against 14: not too short
    expected = 100 * brevity_penalty * math.prod(precisions) ** (1 / 4)
    assert bleu(HYPOTHESES, REFERENCES, tokenize="none").value == pytest.approx(expected, abs=1e-6)


def test_a_short_translation_pays_the_brevity_penalty():
    score = bleu(["two dogs run in the"], ["two dogs run in the snow ."], tokenize="none")
    assert score.value == pytest.approx(100 * math.exp(1 - 7 / 5), abs=1e-6)


def test_chrf_of_equal_text_is_100_and_of_other_text_less():
    assert chrf(REFERENCES, REFERENCES).value == pytest.approx(100)
    assert chrf(REFERENCES, REFERENCES).name == "chrF2"
    assert 50 < chrf(HYPOTHESES, REFERENCES).value < 100


def test_each_sentence_may_match_any_of_several_references():
    others = ["the black cat sat on a mat .", "snow ."]
    assert bleu(HYPOTHESES, REFERENCES).value < 99
    both = bleu(HYPOTHESES, [REFERENCES, others])
    assert both.value == pytest.approx(100)
    assert "nrefs:2" in both.signature


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_lowercase_is_applied_to_both_sides_and_signed(metric):
    assert metric(["Two DOGS run home"], ["two dogs run HOME"]).value < 90
    score = metric(["Two DOGS run home"], ["two dogs run HOME"], lowercase=True)
    assert score.value == pytest.approx(100)
    assert "case:lc" in score.signature


def test_the_text_carries_score_and_signature():
    score = bleu(HYPOTHESES, REFERENCES)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert str(score).startswith(f"BLEU|{score.signature} = {score.value:.2f} ")


@pytest.mark.parametrize("tokenize", ["13a", "none", "intl", "char", "zh"])
def test_tokenizers_that_need_no_download(tokenize):
    score = bleu(["Ein Hund, der rennt."], ["Ein Hund, der rennt."], tokenize=tokenize)
    assert score.value == pytest.approx(100)
    assert f"tok:{tokenize}|" in score.signature


@pytest.mark.parametrize(
    "reference, tokenize, is_hinted",
    [
        ("两只狗在雪地里奔跑。", "13a", True),
        ("二匹の犬が雪の中を走っている。", "13a", True),
        ("สุนัขสองตัว กำลังวิ่งอยู่ในหิมะ", "intl", True),
        ("两只狗在雪地里奔跑。", "zh", False),
        ("两 只 狗 在 雪地 里 奔跑 。", "none", False),
        ("Zwei Hunde rennen im Schnee (雪).", "13a", False),
    ],
)
def test_a_text_without_spaces_needs_another_tokenizer(reference, tokenize, is_hinted, caplog):
    bleu([reference], [reference], tokenize=tokenize, hints=False)
    assert not caplog.records
    bleu([reference], [reference], tokenize=tokenize)
    assert ["Choose zh for Chinese" in text for text in caplog.messages] == [True] * is_hinted


def test_an_unknown_tokenizer_is_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="Received: tokenize='moses'") as error:
        bleu(HYPOTHESES, REFERENCES, tokenize="moses")
    assert all(name in str(error.value) for name in BLEU.TOKENIZERS)


def test_a_tokenizer_that_cannot_be_prepared_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    with pytest.raises(ValueError, match="ja-mecab.*pip install.*choose another") as error:
        bleu(HYPOTHESES, REFERENCES, tokenize="ja-mecab")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", [bleu, chrf])
@pytest.mark.parametrize(
    "references", [REFERENCES[:1], [REFERENCES, REFERENCES[:1]], []], ids=["one", "second", "none"]
)
def test_unequal_line_counts_are_refused_with_both_counts(metric, references):
    with pytest.raises(ValueError, match="2 hypotheses, [01] lines in reference [12]"):
        metric(HYPOTHESES, references)


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_nothing_to_score_is_refused(metric):
    with pytest.raises(ValueError, match="at least one hypothesis"):
        metric([], [])


def test_tokenized_text_gives_a_hint_unless_it_is_declared_or_none_is_wanted(caplog):
    lines = ["two dogs run in the snow ."] * 101
    bleu(lines, lines)
    assert "tokenized period" in caplog.text
    caplog.clear()
    bleu(lines, lines, tokenize="none")
    bleu(lines, lines, hints=False)
    assert caplog.text == ""
