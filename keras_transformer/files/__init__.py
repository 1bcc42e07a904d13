"""Files: whole or not at all, their checksums, their text, and version directories."""
