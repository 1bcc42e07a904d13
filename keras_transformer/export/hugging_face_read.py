"""Translates with a directory of `MarianMTModel`: a program for a fresh process.

    python hugging_face_read.py DIR < request.json > answers.json

It reads the files as `convert.import_run` does. `verify_greedy` describes request and answers.
"""

import json
import sys

from keras_transformer.config import DecodingConfig
from keras_transformer.convert.marian import read_marian
from keras_transformer.translation.translator import Translator


def main():
    request = json.load(sys.stdin)
    read = read_marian(sys.argv[1], write=lambda line: None)
    decoding = DecodingConfig(**request["settings"]["decoding"])
    translator = Translator(read.model, read.tokenizer, read.target_tokenizer, decoding)
    answers = [[best for (best,) in translator.translate(batch)] for batch in request["batches"]]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
