"""What the two file formats of Marian's models have in common: vocabularies, model, translator.

In Marian the end token has id 0, the unknown token id 1, and the decoder starts from a zero vector.
Hugging Face has added a padding token, the last id, whose embedding is zero, and starts with that.
Here padding, unknown, start and end have the ids 0 to 3 as in every model of the package, and the
other tokens follow in their order. So the tables have a row for the start token of its own.
"""

import functools
import pathlib
import re
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.config import DecodingConfig
from keras_transformer.config.yaml import parse_yaml
from keras_transformer.errors import InputError
from keras_transformer.files.regular import VOCABULARY_BYTES, read_regular
from keras_transformer.models import Transformer
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from keras_transformer.translation.translator import Translator

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")  # of the ids 0 to 3
NEVER = -100.0
"""Output bias of a token that their model does not have or never writes: probability 0 in float32,
and still a number that any format holds and training can change."""


class Vocabulary(NamedTuple):
    """A vocabulary in our order."""

    pieces: list[str]
    """The token of each id."""
    rows: list[int | None]
    """For each id, the row of their tables; None where they have none."""
    num_rows: int
    """The number of rows of their tables; those of no token are left out."""

    def in_our_order(self, table):
        """Returns the rows of their table `(V, ...)` in our order, zeros where they have none."""
        with_zeros = np.concatenate([table, np.zeros_like(table[:1])])
        return with_zeros[[len(table) if row is None else row for row in self.rows]]


class Files(NamedTuple):
    """What both readers find in a directory."""

    settings: dict[str, Any]
    """Arguments of `Transformer`."""
    source: Vocabulary
    target: Vocabulary
    """The same object as `source` if both languages share one vocabulary."""
    models: tuple[bytes, bytes]
    """The SentencePiece models of source and target."""
    added_tokens: dict[str, bool]
    """As the argument of `MarianTokenizer.from_parts`; a vocabulary may lack some."""
    decoding: DecodingConfig
    """The search that their programs make by default."""

    def tables(self, shared, source, target):
        """Returns the names of the tables of embeddings, each with its `Vocabulary`."""
        if self.settings["share_embeddings"]:
            return {shared: self.source}
        return {source: self.source, target: self.target}

    def new_model(self, weights, tables, kernels):
        """Returns the built `Transformer`, with weights that the caller replaces.

        Files that do not fit are refused before, as a model can be large.

        Args:
            weights: `Weights`.
            tables: what `tables` has returned.
            kernels: iterable of the names of all kernels, each with its shape.
        """
        d_model = self.settings["d_model"]
        weights.check_all((name, (side.num_rows, d_model)) for name, side in tables.items())
        weights.check_all(kernels)
        target_size = None if self.target is self.source else len(self.target.pieces)
        sizes = len(self.source.pieces), target_size
        return Transformer(*sizes, **self.settings, name="transformer")

    def copy_output_biases(self, weights, model, name, forbidden=()):
        """Copies the output biases `name`; where they have none, they are zero.

        Args:
            forbidden: their ids that must never be written. The end token is not one of them, as in
                `generate`: without it, no translation would end.
        """
        theirs = np.zeros((1, self.target.num_rows), "float32")
        if name in weights:
            theirs = weights.take(name, theirs.shape)
        biases = self.target.in_our_order(theirs[0])
        for i, row in enumerate(self.target.rows):
            is_forbidden = row in forbidden and i not in (PAD_ID, UNKNOWN_ID, END_ID)
            if row is None or i == START_ID or is_forbidden:
                biases[i] = NEVER
        model.output_biases.assign(biases)

    def translator(self, model):
        """Returns the `Translator` of the model."""
        from keras_transformer.tokenizers import MarianTokenizer

        sides = (self.source, self.target), self.models, ("source", "target")
        tokenizers = []
        for vocabulary, model_bytes, name in zip(*sides, strict=True):
            texts = set(vocabulary.pieces[END_ID + 1 :])
            added = {
                token: self.added_tokens[token] for token in self.added_tokens if token in texts
            }
            tokenizer = MarianTokenizer.from_parts(vocabulary.pieces, model_bytes, added)
            if not tokenizer.knows_a_piece:
                raise InputError(
                    f"Expected a vocabulary of the pieces in {name}.spm. Received: "
                    f"{tokenizer.vocab_size:,} tokens, none of which is one of its pieces. Copy "
                    "the files of one model."
                )
            tokenizers.append(tokenizer)
        return Translator(model, *tokenizers, self.decoding)


def copy_tables(weights, model, tables):
    """Copies the embeddings; returns their table of the target."""
    layers = model.source_embedding, model.target_embedding
    for (name, side), layer in zip(tables.items(), layers, strict=False):
        theirs = weights.take(name, (side.num_rows, model.d_model))
        layer.embeddings.assign(side.in_our_order(theirs))
    return theirs


def settings_of(num_layers, num_decoder_layers, **others):
    """Returns arguments of `Transformer`: those of all models of Marian, and `others`."""
    return dict(
        num_layers=num_layers,
        num_decoder_layers=None if num_decoder_layers == num_layers else num_decoder_layers,
        position_layout="concatenated",
        output_bias=True,
        **others,
    )


def search_of(files, **settings):
    """Returns the `DecodingConfig` of these settings, whose scores are divided by length^alpha.

    Args:
        files: names of the files that have the settings, for messages.
    Raises:
        InputError: a value of another type, or one that no search can work with.
    """
    try:
        return DecodingConfig(length_normalization="length", **settings)
    except (ValueError, TypeError) as error:
        raise InputError(f"{error} (in {files})") from None


@functools.cache
def known_settings():
    """Returns the settings that marian_settings.yaml lists: dict from the name of a file."""
    return parse_yaml(pathlib.Path(__file__).with_name("marian_settings.yaml").read_bytes())


def report_not_applied(settings, file, write, others=()):
    """Writes a line about each setting that may change their translations and not ours.

    Args:
        settings: dict of all settings in the file.
        file: its name in `known_settings`. A name that is not there is reported too.
        write: called with each line.
        others: names that are honoured, besides.
    """
    known = known_settings()[file]
    not_applied = known["not_applied"]
    names = {*known["expected"], *known["read"], *known["without_effect"], *others}
    for name, value in sorted(settings.items(), key=lambda item: str(item[0])):
        if name in not_applied:
            if value not in (not_applied[name], None):
                write(f"not applied {name}={value!r:.200}, which has no counterpart here")
        elif name not in names:
            write(
                f"not applied {repr(str(name))[1:-1]:.200}={value!r:.200}, which is not known here"
            )


def vocabulary(ids, unknown, end, pad=None, start=None, num_rows=None):
    """Returns the `Vocabulary` of a dict from pieces to their ids.

    Args:
        ids: dict; the ids are 0, 1, ... in any order.
        unknown, end: their ids of the special tokens.
        pad: the same of padding; None: they have none.
        start: the id whose embedding the decoder starts with; None: a zero vector.
        num_rows: number of rows of their tables; None: one for each id.
    """
    names = {i: piece for piece, i in ids.items()}
    if start is not None and not re.fullmatch("<+s>+", names[start]):
        unwritten = pad, unknown, end  # an ordinary token that also starts may be written
    else:
        unwritten = pad, unknown, start, end
    rest = [i for i in range(len(names)) if i not in unwritten]
    pieces = [*SPECIAL_PIECES, *(names[i] for i in rest)]
    return Vocabulary(pieces, [pad, unknown, start, end, *rest], num_rows or len(names))


def check_ids(ids, path):
    """Raises `InputError` unless `ids` is a dict from pieces to 0, 1, ..., each once."""
    is_dict = isinstance(ids, dict) and all(type(i) is int for i in ids.values())
    if not is_dict or sorted(ids.values()) != list(range(len(ids))) or len(ids) < 3:
        raise InputError(
            "Expected a vocabulary: pieces, and for each its id, from 0 on and each once. "
            f"Received: {path}, which has something else, or has lost entries."
        )


def block_shapes(settings, parts):
    """Yields `(side, number, part, shape)` of all layers of all blocks, without a model.

    Args:
        settings: arguments of `Transformer`.
        parts: the names of all parts.
    Returns:
        Iterator; the shape is that of a kernel `(inputs, outputs)`, or of a normalization's scale.
    """
    d_model, ff_dim = settings["d_model"], settings["ff_dim"]
    shapes = {"inner": (d_model, ff_dim), "outer": (ff_dim, d_model), "norm": (d_model,)}
    num_layers = settings["num_layers"]
    num_decoder_layers = settings["num_decoder_layers"] or num_layers
    for side, number_of_blocks in (("encoder", num_layers), ("decoder", num_decoder_layers)):
        for number in range(number_of_blocks):
            for part in parts:
                sublayer, name = part.split(".")
                if side == "decoder" or sublayer != "cross":
                    yield side, number, part, shapes.get(name, (d_model, d_model))


def read_sentence_piece(directory, name):
    """Returns the bytes of a SentencePiece model, which must be there."""
    return read_regular(directory, name, "the SentencePiece models of Marian", VOCABULARY_BYTES)
