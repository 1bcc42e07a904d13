"""Characters that a text writes as entities, such as `&amp;`, and how its translation does.

A model reads the characters, not the entities: to it, `&amp;` is `&`.
"""

import html
import html.entities
import re

ENTITY = re.compile(r"&(?:#\d+|#x[\da-f]+|[a-z][a-z\d]*);", re.IGNORECASE)
LIKE_MARKUP = re.compile(rf"<[a-z/!?]|{ENTITY.pattern}", re.IGNORECASE)


def character_of(entity: str) -> str | None:
    """Returns the characters that an entity stands for; None where HTML does not know it."""
    if entity[1] != "#" and entity[1:] not in html.entities.html5:
        return None
    return html.unescape(entity) or None


class Entities:
    """Remembers which characters a text writes as entities, and which as they are."""

    def __init__(self) -> None:
        self._entities: dict[str, str] = {}  # from a character to what the text writes for it
        self._raw: set[str] = set()

    def add(self, character: str, entity: str) -> None:
        """Notes what the text writes for a character; the first time decides."""
        self._entities.setdefault(character, entity)

    def add_raw(self, text: str) -> None:
        """Notes characters that the text writes as they are."""
        self._raw.update(text)

    def escaped(self, text: str, has_markup: bool) -> str:
        """Returns a part of a translation with the entities of the text.

        Args:
            has_markup: whether the text has tags or entities: then, `&`, `<` and `>` that it does
                not write as they are become entities. What would be read as markup always does.
        """

        def written(match):
            character = match[0]
            if character in self._entities:
                return self._entities[character]
            is_raw = character in self._raw or not has_markup
            if is_raw and not LIKE_MARKUP.match(text, match.start()):
                return character
            return html.escape(character, quote=False)

        return re.sub(f"[&<>{re.escape(''.join(self._entities))}]", written, text)
