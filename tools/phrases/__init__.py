"""A grammar that writes a sentence in English and in German.

- lexicon: the words, as tables
- syntax: the parts of a clause
- english: writes a clause in English
- german: writes it in German, with its genders, cases, endings and word order
- draw: draws words that make sense together
- pairs: writes a clause in both languages
- simple, compound: the patterns of sentences, with one clause and with two
"""
