import numpy as np

from keras_transformer.data import ParallelCorpus
from keras_transformer.data.ragged_ids import RaggedIds
from keras_transformer.data.remarks import remarks
from keras_transformer.special_ids import UNKNOWN_ID

KNOWN = [RaggedIds(np.full(200, UNKNOWN_ID + 5), [200])] * 2


def corpus(pairs):
    return ParallelCorpus.from_pairs(pairs)


def test_text_as_it_should_be_gets_no_remark():
    train = [(f"a < b & {i} > c", f"A {i}") for i in range(250)]
    some = [("one\teins", "1"), ("<b>one</b>", "&lt;"), ("same", "same")]  # under 1 %
    valid = [(f"new {i}", f"neu {i}") for i in range(101)]
    unknown = RaggedIds(np.array([UNKNOWN_ID] + [5] * 199), [200])
    found = remarks(corpus([*train, *some]), corpus([*valid, train[0]]), [unknown, KNOWN[1]])
    assert list(found) == []


def test_each_mistake_has_a_line_with_its_share():
    train = [
        ("a dog\tein Hund", "ein Hund"),
        ("same", "same"),
        ("a<br/>b", "&quot;A&#39;"),
        *[(f"s {i}", f"t {i}") for i in range(47)],
    ]
    valid = [("s 3", "t 3"), ("s 3", "t 3"), ("s 3", "another"), ("same", "same")]
    unknown = RaggedIds(np.array([UNKNOWN_ID] * 3 + [5] * 97), [100])
    found = [
        line.partition(": ")[0]
        for line in remarks(corpus(train), corpus(valid), [KNOWN[0], unknown])
    ]
    assert found == [
        "tabs        1 of 50 source lines have a tab",
        "markup      1 of 50 source lines have tags or entities, such as <b> or &amp;",
        "markup      1 of 50 target lines have tags or entities, such as <b> or &amp;",
        "equal sides 1 of 50 pairs have the same text on both sides",
        "unknown     3 of 100 target tokens are unknown characters",
        "overlap     3 of 4 validation pairs are in the training text, too",
    ]
