"""Translates with a directory of CTranslate2, from strings to strings; also a program.

    python ctranslate2_search.py DIR < request.json > answers.json

It imports neither TensorFlow, nor Keras, nor this package. So it shows what a program needs that
has only the directory, `ctranslate2` and `sentencepiece`. The request has the `settings` of the
search and `batches` of texts; an answer is the list of the best translations of a batch, each
`[text, score, truncated]`.
"""

import json
import os
import pathlib
import re
import sys

import ctranslate2
import sentencepiece

PIECE_CHARACTERS = 64
"""More characters than any token has, as in `tokenizers.tokenizer`."""

NUM_SPECIAL = 4  # tokens before the others: padding, unknown, start and end
TAG = re.compile(r">>.*?<<", re.DOTALL)  # of a target language
SPACE = "\u2581"  # what SentencePiece writes for a space
BLANK = re.compile(  # as in `files.text`
    r"[\x00-\x20\x7f-"
    "\xa0\xad\u034f\u061c\u115f-\u1160\u1680\u17b4-\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]*"
)

NUM_CORES = (
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


class CTranslate2Search:
    """A model directory of CTranslate2, with the search and the scores of this package.

    CTranslate2 divides the log-probability of a hypothesis of n tokens by n^alpha, this package by
    ((5 + n) / 6)^alpha unless its settings say otherwise. CTranslate2 is asked for all the
    hypotheses that its beam has finished; they are ranked, and scored, as the settings say.

    Three differences from the search of a SavedModel remain. The beam is always kept full, as with
    `keep_beam_full`. The beam search ends when as many hypotheses are finished as the beam is wide,
    even if an unfinished one could still be better.
    The probabilities are those without the tokens for padding, unknown and start, which are never
    chosen, while this package counts what the model gives to them.

    Args:
        directory: path.
        settings: dict with `decoding`, a dict of the settings in `DecodingConfig`; with
            `special_tokens`, the tokens for padding, unknown, start and end; and with `tokenizer`:
            "sentence_piece", or "marian" for a text that may begin with a tag as `>>deu<<`; and
            with `weights`, the type in which they are stored.
        num_threads: number of batches that are translated at once, each by one thread.
    Attributes:
        source, target: the `SentencePieceProcessor`s.
        source_tokens, target_tokens: lists of str, the vocabularies in the order of their ids.
    """

    def __init__(self, directory, settings, num_threads=NUM_CORES):
        directory = pathlib.Path(directory)
        self.decoding = settings["decoding"]
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(str(directory / name))
            for name in ("source.spm", "target.spm")
        )
        self._is_marian = settings["tokenizer"] == "marian"
        *forbidden, self._end = settings["special_tokens"]
        self._forbidden = [[token] for token in forbidden]
        self.source_tokens, self.target_tokens = (
            _vocabulary(directory, side) for side in ("source", "target")
        )
        is_byte = self.source.is_byte
        tokens = self.source_tokens[NUM_SPECIAL:]
        self._known = {x for x in tokens if not is_byte(self.source.piece_to_id(x))}
        self._words = {
            token
            for token in self._known
            if not BLANK.fullmatch(TAG.sub("", token).replace(SPACE, ""))
        }
        self._translator = ctranslate2.Translator(
            str(directory),
            inter_threads=num_threads,
            intra_threads=1,
            compute_type=_compute_type(settings["weights"]),
        )

    def translate(self, texts, n_best=1, batch_size=64):
        """Returns the list of up to `n_best` `(text, score, truncated)` of each text, best first.

        The texts of a list differ: of hypotheses with the same text, only the best is listed.

        Args:
            texts: list of str, or of bytes in UTF-8.
        """
        return self.submit(texts, n_best, batch_size)()

    def submit(self, texts, n_best=1, batch_size=64):
        """Begins what `translate` does; returns a function that waits for the answers."""
        rows = [self.read(text) for text in texts]
        copies = [self._copy(text, row) for text, (row, _) in zip(texts, rows, strict=True)]
        order = [i for i, copy in enumerate(copies) if copy is None]
        order.sort(key=lambda i: -len(rows[i][0]))
        batches = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
        searches = [self._search([rows[i][0] for i in batch], n_best) for batch in batches]

        def answers():
            found = [[(copy, 0.0, is_cut)] for copy, (_, is_cut) in zip(copies, rows, strict=True)]
            for batch, search in zip(batches, searches, strict=True):
                for i, result in zip(batch, search, strict=True):
                    found[i] = self._answer(*rows[i], result.result(), n_best)
            return found

        return answers

    def read(self, text):
        """Returns the source tokens of a text, without the end token, and whether it was cut."""
        return self._tokens(self.source, text, self.decoding["max_source_length"])

    def has_unknown(self, text):
        """Returns whether a text has characters that the tokenizer does not know."""
        return not self._known.issuperset(self.read(text)[0])

    def write(self, tokens):
        """Returns the text of target tokens that are no special ones."""
        if not self._is_marian:
            return self.target.decode(tokens)
        is_control = self.target.is_control
        pieces = [x for x in tokens if not is_control(self.target.piece_to_id(x))]
        return "".join(pieces).replace(SPACE, " ").strip()

    def score(self, texts, targets):
        """Returns the scores of given translations; 0 for a text that is copied."""
        rows = [self.read(text)[0] for text in texts]
        length = self.decoding["max_length"]
        targets = [self._tokens(self.target, text, length)[0] for text in targets]
        copies = map(self._copy, texts, rows)
        places = [i for i, copy in enumerate(copies) if copy is None]
        found = self._translator.score_batch(
            [rows[i] for i in places], [targets[i] for i in places]
        )
        scores = [0.0] * len(texts)
        for i, result in zip(places, found, strict=True):
            scores[i] = sum(result.log_probs) / self._penalty(len(result.log_probs))
        return scores

    def close(self):
        """Frees the memory of the model; `translate` and `score` cannot be called any more."""
        self._translator.unload_model()

    def _copy(self, text, row):
        """Returns the copy that answers a text of which no token is known and has text, or None.

        It has neither the white space around the text nor its tag.
        """
        text = (text.decode("utf-8", "replace") if isinstance(text, bytes) else text).strip()
        tag = TAG.match(text)
        text = text[tag.end() :].strip() if tag and tag.group() in self._known else text
        is_blank = BLANK.fullmatch(text)
        if not is_blank and not self._words.isdisjoint(row):
            return None
        return "" if is_blank or self._known.issuperset(row) else text

    def _search(self, rows, n_best):
        """Starts the search for a batch; returns its asynchronous results."""
        beam_size, alpha = self.decoding["beam_size"], self.decoding["length_penalty"]
        return self._translator.translate_batch(
            rows,
            beam_size=beam_size,
            # with a length penalty, the beam searches on until it is full, so all of it is there
            num_hypotheses=beam_size if alpha or n_best > 1 else 1,
            length_penalty=alpha,
            min_decoding_length=max(0, self.decoding["min_length"] - 1),  # without the end token
            no_repeat_ngram_size=self.decoding["no_repeat_ngram"],
            max_decoding_length=max(map(self._limit, rows)),
            suppress_sequences=self._forbidden,
            return_scores=True,
            return_end_token=True,
            asynchronous=True,
        )

    def _limit(self, row):
        """Returns the maximum tokens of the translation of a row, with the end token."""
        return min(2 * len(row) + 10, self.decoding["max_length"])

    def _answer(self, row, is_cut, found, n_best):
        """Returns the best hypotheses of a row as `(text, score, truncated)`, best first."""
        if max(map(len, found.hypotheses)) > self._limit(row):
            # its own limit is lower than that of its batch
            found = self._search([row], n_best)[0].result()
        ranked = []
        for tokens, value in zip(found.hypotheses, found.scores, strict=True):
            log_probability = value * len(tokens) ** self.decoding["length_penalty"]
            has_ended = bool(tokens) and tokens[-1] == self._end
            text = self.write(tokens[:-1] if has_ended else tokens)
            score = log_probability / self._penalty(len(tokens))
            ranked.append((text, score, is_cut or not has_ended))
        distinct = {}
        for translation in sorted(ranked, key=lambda translation: -translation[1]):
            distinct.setdefault(translation[0], translation)
        return [*distinct.values()][:n_best]

    def _penalty(self, length):
        alpha = self.decoding["length_penalty"]
        if self.decoding["length_normalization"] == "length":
            return length**alpha
        return ((5 + length) / 6) ** alpha

    def _tokens(self, processor, text, max_tokens):
        """Returns the tokens of a text, at most `max_tokens`, and whether something was cut off."""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        head = text[: max_tokens * PIECE_CHARACTERS]  # the rest cannot matter, but takes time
        tag = TAG.match(head) if self._is_marian else None
        tokens = [tag.group()] if tag else []
        tokens += processor.encode(head[tag.end() :] if tag else head, out_type=str)
        return tokens[:max_tokens], len(head) < len(text) or len(tokens) > max_tokens


def _vocabulary(directory, side):
    """Returns the list of the tokens of a side, in the order of their ids."""
    shared = directory / "shared_vocabulary.json"
    file = shared if shared.exists() else directory / f"{side}_vocabulary.json"
    return json.loads(file.read_text("utf-8"))


def _compute_type(weights):
    """Returns the type to compute in: that of the weights, if the processor has it.

    It is the one that CTranslate2 would choose by itself, after a warning.
    """
    is_half = weights in ("float16", "bfloat16")
    has_it = weights in ctranslate2.get_supported_compute_types("cpu")
    return "float32" if is_half and not has_it else "default"


def main():
    request = json.load(sys.stdin)
    search = CTranslate2Search(sys.argv[1], request["settings"])
    answers = [[best for (best,) in search.translate(batch)] for batch in request["batches"]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
