"""Strings in, strings out: a model and its tokenizers as one translator.

Shapes: B batch (sentences), N hypotheses a sentence, L maximum output length, S source length,
T target length, H heads.
"""

import pathlib
import threading
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_transformer import backend
from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import decode, decode_sampled, score
from keras_transformer.decoding.search_result import IMPOSSIBLE
from keras_transformer.layers.whole_numbers import check_whole_numbers
from keras_transformer.special_ids import PAD_ID, START_ID


class Translation(NamedTuple):
    """One translation of a text."""

    text: str
    score: float
    """Summed log-probability over the length penalty, the end token counted; 0 of a blank text."""
    truncated: bool
    """Whether the source was cut at `max_source_length` or the translation stopped at its limit."""


class AttentionMap(NamedTuple):
    """Who attends to whom in one translation, with the names of rows and columns."""

    source_pieces: list
    """S strings: what the encoder reads, the end token included."""
    target_pieces: list
    """T strings: the piece predicted at each decoder position, the end token included."""
    target_inputs: list
    """T strings: the piece read at each decoder position, the start token first."""
    weights: dict
    """NumPy float32: `"encoder"` `(layers, H, S, S)`, `"decoder"` `(layers, H, T, T)` and `"cross"`
    `(layers, H, T, S)`; without those of linear attention, which has none."""
    truncated: bool = False
    """Whether the text was cut, or the translation cut or stopped at its limit."""


class Translator:
    """Translates text with a `Transformer` and its tokenizers.

    Weights that change later, in training for example, are seen by the next call. A text without
    pieces (empty or blank) is answered by "", with score 0, and never reaches the model.

    Args:
        model: `Transformer`.
        tokenizer: of the source, and of the target where it has none of its own.
        target_tokenizer: or None.
        decoding: `DecodingConfig`; None is the default one.
        batch_size: sentences decoded at once.
    Raises:
        ValueError: a tokenizer has more pieces than the model has embeddings, a batch_size below 1;
            in a call, scores that are not finite.

    Example:
        Translator(model, tokenizer)(["A dog runs."])
    """

    def __init__(self, model, tokenizer, target_tokenizer=None, decoding=None, batch_size=64):
        self.model = model
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer or tokenizer
        self.decoding = decoding or DecodingConfig()
        check_whole_numbers(batch_size=batch_size)
        self.batch_size = batch_size
        self._check_vocabulary("source", self.tokenizer, model.source_vocab_size)
        self._check_vocabulary("target", self.target_tokenizer, model.num_target_pieces)
        if not model.built:
            model.build()
        self._seed_generator = keras.random.SeedGenerator(0)
        self._seed_lock = threading.Lock()  # from setting the seed to the end of the draw
        self._compiled = {}

    def __reduce__(self):
        """For `pickle` and `copy`: what it is made of; searches are compiled anew."""
        parts = self.model, self.tokenizer, self.target_tokenizer, self.decoding, self.batch_size
        return type(self), parts

    @classmethod
    def load(cls, path, checkpoint=None):
        """Returns the translator of a run directory or of an export.

        Args:
            path: run directory, or export directory with or without a version.
            checkpoint: "best", "last" or "averaged", of a run; None: the weights that validation
                found better, the best ones or the averaged ones.
        Returns:
            `Translator`, or the `ExportedTranslator` of an export.
        Raises:
            ValueError: nothing to load there, or a checkpoint of an export.
        """
        path = pathlib.Path(path)
        if any(path.glob("saved_model.pb")) or any(path.glob("*/saved_model.pb")):
            from keras_transformer import export

            if checkpoint is not None:
                raise ValueError(
                    "An export holds one set of weights. "
                    f"Received: checkpoint={checkpoint!r}. Leave it out, or load the run."
                )
            return export.load(path)
        from keras_transformer.training.run import load_run

        model, tokenizer, target_tokenizer, config = load_run(path, checkpoint)
        return cls(model, tokenizer, target_tokenizer, config.decoding)

    def __call__(self, texts):
        """Returns the best translation of each text: list of str, or str for a str."""
        if isinstance(texts, str):
            return self([texts])[0]
        return [best.text for (best,) in self.translate(texts)]

    def translate(self, texts, n_best=1):
        """Returns for each text the list of its `n_best` translations, the best first.

        Args:
            texts: list of str.
            n_best: at most the beam size.
        """
        if not 1 <= n_best <= self.decoding.beam_size:
            raise ValueError(
                f"Expected n_best from 1 to the beam size. Received: n_best={n_best}, "
                f"beam_size={self.decoding.beam_size}. Search with a wider beam."
            )
        compiled = self._compiled_decode(n_best)
        return self._search(texts, lambda source_ids, _: compiled(source_ids), n_best)

    def sample(self, texts, temperature=1.0, top_k=0, top_p=1.0, seed=0):
        """Returns a random translation of each text.

        Args:
            texts: list of str.
            temperature, top_k, top_p: see `decoding.sample`.
            seed: int from 0; the same seed and texts give the same translations, in any thread.
        """

        def draw(source_ids):
            return decode_sampled(
                self.model,
                source_ids,
                self.decoding,
                temperature,
                top_k,
                top_p,
                seed=self._seed_generator,
            )

        compiled = self._compile(("sample", temperature, top_k, top_p), draw)

        def draw_batch(source_ids, number):
            with self._seed_lock:
                self._seed_generator.state.assign([seed, number])  # another draw for each batch
                return compiled(source_ids)

        return [best.text for (best,) in self._search(texts, draw_batch, 1)]

    def score(self, sources, targets):
        """Returns the score that a search would give to the translations `targets`.

        Args:
            sources, targets: lists of str, equally long. Targets are cut at `max_length` pieces.
        Returns:
            NumPy float32 `(len(sources),)`; 0 where the source is blank.
        """
        if len(sources) != len(targets):
            raise ValueError(
                "Expected a target for each source. Received: "
                f"{len(sources)} sources, {len(targets)} targets."
            )

        def force(source_ids, target_ids):
            return score(self.model, source_ids, target_ids, self.decoding.length_penalty)

        compiled = self._compile("score", force)
        source_rows, _ = self._encode(self.tokenizer, sources, self.decoding.max_source_length)
        target_rows, _ = self._encode(self.target_tokenizer, targets, self.decoding.max_length)
        scores = np.zeros(len(sources), "float32")
        for batch in self._batches(source_rows):
            source_ids = self._pad([source_rows[i] for i in batch])
            target_ids = self._pad([target_rows[i] for i in batch])
            batch_scores = ops.convert_to_numpy(compiled(source_ids, target_ids))
            scores[batch] = batch_scores[: len(batch)]
            _check_scores(scores[batch], [sources[i] for i in batch])
        return scores

    def attention(self, text, target=None):
        """Returns the attention weights of all layers and heads, as an `AttentionMap`.

        Args:
            text: str.
            target: str, the translation to look at; None: the best one found.
        Raises:
            ValueError: a blank text.
        """
        (source_row,), (truncated,) = self._encode(
            self.tokenizer, [text], self.decoding.max_source_length
        )
        if len(source_row) == 1:
            raise ValueError(
                f"Expected a text to look at. Received: text={text!r}. Give one with a word in it."
            )
        if target is None:
            found = self._compiled_decode(n_best=1)(self._pad([source_row]))
            _check_scores(ops.convert_to_numpy(found.scores)[0, :1], [text])
            labels = ops.convert_to_numpy(found.ids)[0, 0]
            labels = labels[labels != PAD_ID]
            is_whole = ops.convert_to_numpy(found.finished)[0, 0]
        else:
            max_length = self.decoding.max_length
            (labels,), (is_cut,) = self._encode(self.target_tokenizer, [target], max_length)
            is_whole = not is_cut
        target_ids = np.concatenate([[START_ID], labels[:-1]]).astype("int32")
        _, weights = self.model(
            {"source_ids": source_row[None], "target_ids": target_ids[None]},
            return_attention_weights=True,
            training=False,
        )
        return AttentionMap(
            self.tokenizer.to_pieces(source_row),
            self.target_tokenizer.to_pieces(labels),
            self.target_tokenizer.to_pieces(target_ids),
            {kind: _stack(layers) for kind, layers in weights.items()},
            bool(truncated or not is_whole),
        )

    def _search(self, texts, search, num_hypotheses):
        """Returns for each text the list of its `Translation`s, found batch by batch.

        Args:
            search: from source ids `(B, S)` and the number of the batch to a `SearchResult`.
        """
        rows, truncated = self._encode(self.tokenizer, texts, self.decoding.max_source_length)
        answers = [[Translation("", 0.0, False)] * num_hypotheses for _ in rows]
        for number, batch in enumerate(self._batches(rows)):
            found = search(self._pad([rows[i] for i in batch]), number)
            ids, scores, finished = (
                ops.convert_to_numpy(tensor)[: len(batch)]
                for tensor in (found.ids, found.scores, found.finished)
            )
            _check_scores(scores[:, 0], [texts[i] for i in batch])
            decoded = self.target_tokenizer.decode(ids.reshape(-1, ids.shape[-1]))
            decoded = np.asarray(decoded).reshape(scores.shape)  # (B, N)
            for place, i in enumerate(batch):
                answers[i] = [
                    Translation(text.decode(), float(value), bool(truncated[i] or not ended))
                    for text, value, ended in zip(
                        decoded[place], scores[place], finished[place], strict=True
                    )
                ]
        return answers

    def _encode(self, tokenizer, texts, max_pieces):
        """Returns the ids of each text, the end token included, and whether they were cut."""
        if isinstance(texts, str):
            raise ValueError(f"Expected a list of texts. Received: {texts!r}. Put it in a list.")
        ids, truncated = tokenizer.encode_padded(texts, max_pieces)
        return [row[row != PAD_ID] for row in np.asarray(ids)], np.asarray(truncated)

    def _batches(self, rows):
        """Returns lists of the indices of rows with pieces, of like length, the longest first."""
        order = [i for i in range(len(rows)) if len(rows[i]) > 1]
        order.sort(key=lambda i: -len(rows[i]))
        return [order[i : i + self.batch_size] for i in range(0, len(order), self.batch_size)]

    def _pad(self, rows):
        """Returns the rows as one array `(B, S)`, filled up with padding."""
        num_rows, length = len(rows), max(len(row) for row in rows)
        if keras.backend.backend() == "jax":  # compiles for each shape: let there be few
            num_rows, length = 2 ** (num_rows - 1).bit_length(), -(-length // 16) * 16
        ids = np.full((num_rows, length), PAD_ID, "int32")
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
        return ids

    def _compiled_decode(self, n_best):
        def find(source_ids):
            return decode(self.model, source_ids, self.decoding, n_best)

        return self._compile(("decode", n_best), find)

    def _compile(self, key, function):
        """Returns `function`, compiled when it is asked for the first time under `key`."""
        if key not in self._compiled:
            variables = [*self.model.weights, self._seed_generator.state]
            self._compiled[key] = backend.compile_function(function, variables)
        return self._compiled[key]

    @staticmethod
    def _check_vocabulary(side, tokenizer, num_embeddings):
        if tokenizer.vocab_size > num_embeddings:
            raise ValueError(
                f"The {side} tokenizer has more pieces than the model has {side} embeddings. "
                f"Received: tokenizer.vocab_size={tokenizer.vocab_size}, "
                f"{side} vocabulary of the model={num_embeddings}. Take the tokenizer that the "
                "model was trained with."
            )


def _check_scores(scores, texts):
    """Raises `ValueError` where a score is no number, or a search has found nothing of a text."""
    for value, text in zip(scores, texts, strict=True):
        if not value > IMPOSSIBLE / 2:  # NaN is above nothing; a search compares it away
            raise ValueError(
                "Expected a model with finite weights and scores. Received: a score that is not "
                f"finite, of the text {text!r}. Load another checkpoint, or train again with a "
                "lower learning rate."
            )


def _stack(layers):
    """Returns NumPy float32 `(layers, H, T, S)` of one sentence's tensors `(1, H, T, S)`."""
    return np.concatenate([ops.convert_to_numpy(ops.cast(w, "float32")) for w in layers])
