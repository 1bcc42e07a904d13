"""Where the markup of a text belongs in its translation."""

import difflib
import re
import unicodedata

import numpy as np

MIN_SHARE = 0.1
"""A word that looks less at another than this is no translation of it."""


class Placement:
    """Places the parts of a text in its translation, by the alignment of words.

    A source word s and a target word t belong together as far as each of them is the other's
    choice: the share of s in the attention of t, times the share of t in the attention to s
    (agreement of both directions, Liang et al., 2006, https://aclanthology.org/N06-1014/). Scaled
    so that the shares of a target word add up to one.

    Args:
        source, target: the plain text and its translation.
        explanation: `Explanation` of the two.
    """

    def __init__(self, source, target, explanation):
        self._source, self._target = source, target
        shares = _shares(explanation)
        spans = word_spans(source, explanation.source)
        words = word_spans(target, [word.text for word in explanation.words])
        rows, columns = ([i for i, span in enumerate(each) if span] for each in (words, spans))
        self._spans, self._words = [spans[i] for i in columns], [words[i] for i in rows]
        self._shares = shares[np.ix_(rows, columns)]  # (target words, source words)
        self._is_said = self._shares.max(axis=0, initial=0.0) >= MIN_SHARE

    def place(self, parent, bounds, pieces, unplaced, is_lost=False):
        """Appends the pieces of the parts of a part, in the order in which they stand.

        Args:
            parent: `Part`.
            bounds: pair of int, where it begins and ends in the target.
            pieces: list of pairs of a place and what stands there, see `MarkedText`.
            unplaced: list of str.
            is_lost: whether the parent could not be placed.
        """
        elements = [part for part in parent.parts if part.end > part.start]
        places = self._places_of_elements(parent, elements, bounds)
        for part in parent.parts:
            if part.end == part.start:
                place = None if is_lost else self._place_of_copied(parent, part, bounds)
                places[part.begin] = place and self._outside(place, elements, places)
        order = []
        for part in parent.parts:
            place = places[part.begin]
            if place is None:
                unplaced.append(part.opening)
            order.append((place or (bounds[1], bounds[1]), part))
        for (start, end), part in sorted(order, key=lambda each: each[0]):
            if part.end == part.start:
                pieces.append((start, part))
                continue
            pieces.append((start, part.opening))
            self.place(part, (start, end), pieces, unplaced, places[part.begin] is None)
            pieces.append((end, part.closing))

    def _places_of_elements(self, parent, elements, bounds):
        """Returns a dict from the beginning of each element to its place; None: it has none."""
        places, taken = {}, []
        best = {part.begin: self._best(parent, part, bounds, []) for part in elements}
        for part in sorted(elements, key=lambda part: -best[part.begin][0]):
            _, place = self._best(parent, part, bounds, taken)
            places[part.begin] = place
            taken += filter(None, [place])
        return places

    def _best(self, parent, part, bounds, taken):
        """Returns how sure the best place of an element is, and the place; None: there is none."""
        inside = self._words_in(part)
        if not inside:  # of a source that was cut
            return 0.0, None
        rest = self._source[parent.start : part.start] + self._source[part.end : parent.end]
        if not rest.strip() and not taken and bounds[0] < bounds[1]:
            return np.inf, bounds
        shares = self._shares[:, inside].sum(axis=1)
        free = [
            i
            for i in range(len(self._words))
            if _is_free(self._range(part, inside, i, i, bounds), taken)
        ]
        if not free:
            return 0.0, None
        if not taken and inside == self._words_in(parent):
            return np.inf, self._range(part, inside, free[0], free[-1], bounds)
        gains = np.full(len(shares), -np.inf)
        gains[free] = shares[free] - 0.5
        first, last, gain = _best_run(gains)
        if gain <= 0 and shares[first] < MIN_SHARE:
            return 0.0, None
        return gain, self._range(part, inside, first, last, bounds)

    def _range(self, part, inside, first, last, bounds):
        """Returns where an element begins and ends if it has the target words `first` to `last`.

        Punctuation around the words belongs to it only where it begins or ends with some in the
        source. A word that the translation copies may be cut as in the source.

        Args:
            inside: the source words of the element.
            bounds: what it must be within; without a word in them, it ends before it begins.
        """
        start, end = self._words[first][0], self._words[last][1]
        core = _core(self._target, (start, end))
        if first == last and len(inside) == 1:
            a, b = _core(self._source, self._spans[inside[0]])
            is_cut = a < part.start or part.end < b
            if is_cut and self._source[a:b] == self._target[slice(*core)]:
                core = core[0] + max(a, part.start) - a, core[0] + min(part.end, b) - a
                start, end = core
        text = self._source[part.start : part.end].strip()
        start = core[0] if text[0].isalnum() else start
        end = core[1] if text[-1].isalnum() else end
        return max(start, bounds[0]), min(end, bounds[1])

    def _words_in(self, part):
        return [i for i, (a, b) in enumerate(self._spans) if a < part.end and b > part.start]

    def _place_of_copied(self, parent, part, bounds):
        """Returns the place of what is copied, an empty range; None where no word says it."""
        place = part.start
        if not self._source[parent.start : place].strip():
            return bounds[0], bounds[0]
        if not self._source[place : parent.end].strip():
            return bounds[1], bounds[1]
        spans = {i: span for i, span in enumerate(self._spans) if self._is_said[i]}
        before = [i for i, (start, _) in spans.items() if start < place][-1:]
        after = [i for i, (_, end) in spans.items() if end > place and i not in before][:1]
        beside = before + after
        beside = [i for i in beside if spans[i][0] <= place <= spans[i][1]] or beside
        if not beside:
            return None
        surest = max(beside, key=lambda i: self._shares[:, i].max())
        found = self._beside(place, surest, surest in after)
        found = min(max(found, bounds[0]), bounds[1])
        return found, found

    def _beside(self, place, i, is_after):
        """Returns the place in the target beside the translation of the source word `i`."""
        start, end = self._words[int(self._shares[:, i].argmax())]
        first, last = self._spans[i]
        a, b = _core(self._source, (first, last))
        c, d = _core(self._target, (start, end))
        if a < place < b and self._source[a:b] == self._target[c:d]:
            return c + place - a
        if is_after or place <= a:  # before the word, or behind the punctuation that opens it
            return c if first < place or a == first else start
        return d if place < last or b == last else end

    @staticmethod
    def _outside(place, elements, places):
        """Returns a place, or the nearer end of the element in which it is."""
        for element in elements:
            if places[element.begin] is None:
                continue
            start, end = places[element.begin]
            if start < place[0] < end:
                nearer = start if place[0] - start < end - place[0] else end
                return nearer, nearer
        return place


def word_spans(text, words):
    """Returns where each word stands in a text: pairs of int; None for a word that is not there.

    Args:
        text: str.
        words: list of str, as the tokenizer writes them, which may change characters.
    """
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    if len(spans) == len(words):
        return spans
    letters = [(i, c) for i, character in enumerate(text) for c in _letters(character)]
    wanted = [(k, c) for k, word in enumerate(words) for c in _letters(word)]
    sides = ([c for _, c in letters], [c for _, c in wanted])
    found = [[] for _ in words]
    for a, b, size in difflib.SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks():
        for (i, _), (k, _) in zip(letters[a : a + size], wanted[b : b + size], strict=True):
            found[k].append(i)
    return [(places[0], places[-1] + 1) if places else None for places in found]


def _letters(text):
    return [c for c in unicodedata.normalize("NFKC", text).casefold() if not c.isspace()]


def _shares(explanation):
    """Returns how much each target word belongs to each source word: `(target, source)`."""
    sizes = len(explanation.words), len(explanation.source)
    looks = explanation.attention
    if looks is None:
        looks = np.zeros(sizes)
        for i, word in enumerate(explanation.words):
            if word.source is not None:
                looks[i, word.source] = 1.0
    looks = np.asarray(looks, "float64").reshape(sizes)
    agreed = looks**2 / np.maximum(looks.sum(axis=0, keepdims=True), 1e-9)
    return agreed / np.maximum(agreed.sum(axis=1, keepdims=True), 1e-9)


def _best_run(gains):
    """Returns `(first, last, gain)` of the run of items with the highest sum."""
    best = max(range(len(gains)), key=lambda i: gains[i])
    best = best, best, gains[best]
    first, gain = 0, 0.0
    for last, value in enumerate(gains):
        if gain <= 0:
            first, gain = last, 0.0
        gain += value
        if gain > best[2]:
            best = first, last, gain
    return best


def _is_free(place, taken):
    start, end = place
    return start < end and all(end <= a or start >= b for a, b in taken)


def _core(text, span):
    """Returns where the letters of a word begin and end; all of a word that has none."""
    letters = [i for i in range(*span) if text[i].isalnum()]
    return (letters[0], letters[-1] + 1) if letters else span
