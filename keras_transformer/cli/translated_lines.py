"""What `translate` writes of each line, and what it says at the end of those that need a look."""

import json

from keras_transformer.cli import console
from keras_transformer.files.text import is_blank

MAX_NAMED = 5
"""Lines that are named with what they lack."""
WARNINGS = {
    "incomplete": "{of_all}, or their translations, reached a limit of length and are incomplete; "
    "{named}",
    "lost": "{of_all} have characters that the tokenizer does not know, so translations lack them; "
    "{named}",
    "lacking": "the translations of {of_all} lack a term, or have one that is marked by !: {named}",
    "displaced": "the translations of {of_all} have markup at the end, as no word of them belongs "
    "to it: {named}",
}


def write_lines(arguments, lines, terms, markup, output):
    """Writes the translations of lines, and says what they lack.

    Args:
        lines: yields of each the text, its unknown characters, its translations, and the
            `Explanation` of each of them, or None.
    """
    notes = Notes(output)
    plain = str if markup is None else markup.plain
    for number, line in enumerate(lines, start=output.num_done + 1):
        text, unknown, translations, explanations = line
        best, said = translations[0], plain(translations[0].text)
        not_met = [] if terms is None else terms.not_met(plain(text), said)
        if arguments.json:
            output.write(_as_json(number, translations, explanations, not_met, unknown, markup))
        else:
            for pair in zip(translations, explanations, strict=True):
                output.write(_row(arguments, number, *pair))
        notes.add(number, best, said, text, unknown, not_met)
        output.end_answer(text)
    notes.say()


def _row(arguments, number, translation, explanation):
    """Returns the line of a translation."""
    columns = [" ".join(translation.text.splitlines())]
    if arguments.scores or arguments.n_best > 1:
        columns.insert(0, f"{translation.score:.4f}")
    if arguments.n_best > 1:
        columns.insert(0, str(number))
    if arguments.alignments:
        by_words = arguments.alignments == "words"
        columns.append(explanation.alignment if by_words else explanation.token_alignment)
    return "\t".join(columns)


def _as_json(number, translations, explanations, not_met, unknown, markup):
    """Returns the object of a line, on one line."""
    found = [
        {
            "text": translation.text,
            "score": round(translation.score, 4),
            "truncated": translation.truncated,
            "words": [
                {"text": word.text, "score": round(word.score, 4), "source": word.source}
                for word in explanation.words
            ],
            "alignment": explanation.alignment,
            **({} if markup is None else {"unplaced": translation.unplaced}),
        }
        for translation, explanation in zip(translations, explanations, strict=True)
    ]
    source = explanations[0].source
    content = {"line": number, "source": source, "translations": found}
    content |= {"not_met": not_met, "unknown": unknown}
    return json.dumps(content, ensure_ascii=False)


class Notes:
    """The numbers of the lines that need a look, kept with the output until it is complete.

    Args:
        output: `ResumableLines`.
    """

    def __init__(self, output):
        self._output = output
        self._lines = {
            name: output.notes.setdefault(name, {"count": 0, "first": []}) for name in WARNINGS
        }

    def add(self, number, best, said, text, unknown, not_met):
        """Notes what is wrong with a line.

        Args:
            number: of the line, from 1.
            best: its best `Translation`, or `MarkedTranslation`.
            said: its text without markup.
            text: the line.
            unknown: str, its characters that the tokenizer does not know.
            not_met: list of the terms that the translation lacks.
        """
        if best.truncated:
            self._add("incomplete", number)
        if not (is_blank(text) or set(unknown) <= set(said)):  # a copy has them
            self._add("lost", number)
        if not_met:
            self._add("lacking", f"line {number} ({', '.join(not_met)})")
        if unplaced := getattr(best, "unplaced", ()):
            self._add("displaced", f"line {number} ({', '.join(unplaced)})")

    def _add(self, name, line):
        self._lines[name]["count"] += 1
        if len(self._lines[name]["first"]) < MAX_NAMED:  # an input may have any number of lines
            self._lines[name]["first"].append(line)

    def say(self):
        """Writes a warning for each thing that was found."""
        for name, lines in self._lines.items():
            if lines["count"]:
                of_all = f"{lines['count']} of {self._output.num_done} lines"
                named = _named(**lines)
                console.say("warning: " + WARNINGS[name].format(of_all=of_all, named=named))


def _named(count, first):
    """Returns the first of some lines: numbers, or texts that name them and what they lack."""
    if isinstance(first[0], int):
        return f"the first is line {first[0]}"
    more = count - len(first)
    return "; ".join(first) + (f" and {more} more" if more else "")
