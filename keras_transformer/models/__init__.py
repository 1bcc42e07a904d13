"""Models, built from `keras_transformer.layers`."""

from keras_transformer.models.bert import Bert, BertClassifier, BertTokenClassifier
from keras_transformer.models.bert_pretraining import BertPretraining
from keras_transformer.models.ensemble import Ensemble
from keras_transformer.models.from_config import MODELS
from keras_transformer.models.gpt import Gpt
from keras_transformer.models.image_captioner import ImageCaptioner
from keras_transformer.models.rnn_seq2seq import RnnSeq2Seq
from keras_transformer.models.transformer import Transformer
from keras_transformer.models.vision_transformer import (
    VisionTransformer,
    attention_rollout,
    class_token_attention,
)

__all__ = [
    "MODELS",
    "Bert",
    "BertClassifier",
    "BertPretraining",
    "BertTokenClassifier",
    "Ensemble",
    "Gpt",
    "ImageCaptioner",
    "RnnSeq2Seq",
    "Transformer",
    "VisionTransformer",
    "attention_rollout",
    "class_token_attention",
]
