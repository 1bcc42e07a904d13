"""Callbacks that translate text during `model.fit` of a translation model."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import keras

from keras_transformer.config import DecodingConfig
from keras_transformer.errors import InputError
from keras_transformer.translation.evaluation import bleu, part_bleu
from keras_transformer.translation.translator import Translator
from keras_transformer.types import Texts

if TYPE_CHECKING:
    from keras_transformer.tokenizers.tokenizer import Tokenizer


class TranslationCallback(keras.callbacks.Callback):
    """Translates `source` at the end of epochs and passes the result to `on_translations`.

    Args:
        source: list of str.
        tokenizer: tokenizer of the source, and of the target if `target_tokenizer` is None.
        target_tokenizer: tokenizer of the target, or None.
        decoding: `DecodingConfig`; None means greedy search, which is fast.
        every: number of epochs between translations.
    """

    def __init__(
        self,
        source: Texts,
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        decoding: DecodingConfig | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        self.source = source
        self.tokenizer = tokenizer
        self.target_tokenizer = target_tokenizer
        self.decoding = decoding or DecodingConfig(beam_size=1)
        self.every = every

    def set_model(self, model: keras.Model) -> None:
        """Called by `fit`, before the first epoch."""
        if model is self.model:  # another `fit` of the same model: the search is compiled already
            return
        super().set_model(model)
        self.translator = Translator(model, self.tokenizer, self.target_tokenizer, self.decoding)

    def translations(self) -> list[str]:
        """Returns the translations of `source` with the current weights."""
        return self.translator(self.source)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if (epoch + 1) % self.every == 0:
            self.on_translations(epoch, self.translations(), logs)

    def on_translations(self, epoch: int, translations: list[str], logs: Any) -> None:
        """Called with the epoch (counted from 0), the translations, and the logs of the epoch."""
        raise NotImplementedError


class BleuCallback(TranslationCallback):
    """Adds the BLEU of the translations to the logs of an epoch, as `val_bleu`.

    The progress bar and the history show it, and later callbacks in the list can monitor it, in the
    epochs in which it is computed.

    Args:
        source: list of str, the raw validation text.
        references: list of str, or a list of such lists: raw text.
        tokenizer, target_tokenizer, decoding, every: see `TranslationCallback`.
        lowercase, tokenize: see `evaluation.bleu`.
        groups: dict from the name of a part of the text to the indices of its sentences; the BLEU
            of a part is `val_bleu/NAME`.
        samples: number of the first sentences that are shown with their translations.
        write: called with each line that is shown; None: prints to standard error.
    Attributes:
        last_translations: list of str, those of the last epoch that was scored.
    Raises:
        InputError: arguments that `evaluation.bleu` refuses.

    Example:
        model.fit(
            batches,
            callbacks=[
                BleuCallback(source, references, tokenizer),
                # BLEU may be 0 in the first epochs
                keras.callbacks.EarlyStopping(
                    "val_bleu", mode="max", patience=10, start_from_epoch=10
                ),
            ],
        )
    """

    def __init__(
        self,
        source: Texts,
        references: Texts | Sequence[Texts],
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        decoding: DecodingConfig | None = None,
        every: int = 1,
        lowercase: bool = False,
        tokenize: str = "13a",
        groups: Mapping[str, Sequence[int]] | None = None,
        samples: int = 0,
        write: Callable[[str], Any] | None = None,
    ) -> None:
        super().__init__(source, tokenizer, target_tokenizer, decoding, every)
        self.references = references
        self.lowercase = lowercase
        self.tokenize = tokenize
        self.groups = groups or {}
        self.samples = samples
        self.write = write
        self.last_translations: list[str] = []
        self.scores(source)  # refuses wrong references now, not after an epoch

    def scores(self, translations: Texts) -> dict[str, float]:
        """Returns the BLEU of `translations`, a list of str, and of their groups."""
        settings = self.lowercase, self.tokenize
        # without hints, which would appear after each epoch
        whole = bleu(translations, self.references, *settings, hints=False).value
        parts = {
            f"val_bleu/{name}": part_bleu(translations, self.references, rows, *settings)
            for name, rows in self.groups.items()
        }
        return {"val_bleu": whole, **parts}

    def on_translations(self, epoch: int, translations: list[str], logs: Any) -> None:
        logs.update(self.scores(translations))
        self.last_translations = translations
        write = self.write or (lambda line: print(line, file=sys.stderr))
        for line in self.sample_lines(self.samples):
            write(line)

    def sample_lines(self, number: int) -> list[str]:
        """Returns the lines that show the first sentences and what they were last translated as."""
        several = self.references and not isinstance(self.references[0], str)
        references = self.references[0] if several else self.references
        number = min(number, len(self.last_translations))
        shown = (texts[:number] for texts in (self.source, references, self.last_translations))
        return _sample_lines(*shown)


class SampleTranslations(TranslationCallback):
    """Prints translations next to their references, to show what the model has learned.

    Args:
        source: list of str; a few, as all of them are printed.
        references: list of str, one for each source sentence.
        tokenizer, target_tokenizer, decoding, every: see `TranslationCallback`.
        stream: text stream to print to; None means standard error.
    Raises:
        InputError: the numbers of sources and references differ.
    """

    def __init__(
        self,
        source: Texts,
        references: Texts,
        tokenizer: "Tokenizer",
        target_tokenizer: "Tokenizer | None" = None,
        decoding: DecodingConfig | None = None,
        every: int = 1,
        stream: TextIO | None = None,
    ) -> None:
        if len(source) != len(references):
            raise InputError(
                "Expected a reference for each source sentence. Received: "
                f"{len(source)} sources, {len(references)} references."
            )
        super().__init__(source, tokenizer, target_tokenizer, decoding, every)
        self.references = references
        self.stream = stream

    def on_translations(self, epoch: int, translations: list[str], logs: Any) -> None:
        lines = [f"\nepoch {epoch + 1}"]  # the line break ends the line of the progress bar
        lines += _sample_lines(self.source, self.references, translations)
        print("\n".join(lines), file=self.stream or sys.stderr)


def _sample_lines(source, references, translations):
    """Returns the lines that show sentences, references and translations, lists of equal length."""
    lines = []
    for sentence in zip(source, references, translations, strict=True):
        for name, text in zip(("source", "reference", "translation"), sentence, strict=True):
            lines.append(f"  {name:<12} {text}")
        lines.append("")
    return lines
