"""The ids that every tokenizer, data set, model and search of the package agrees on."""

PAD_ID = 0
UNKNOWN_ID = 1
START_ID = 2
END_ID = 3
