"""What `translate` says at the end of the lines that need a look."""

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
