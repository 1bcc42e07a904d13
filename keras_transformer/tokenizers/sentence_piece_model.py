"""Reorders the tokens of any SentencePiece model, so that its special ids are the package's."""

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.errors import InputError
from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece  # type: ignore[attr-defined]


def with_our_special_ids(model):
    """Returns `model` with padding, unknown, start and end token at the ids 0 to 3.

    The other tokens keep their order, scores and types, so text is split as before. A special
    token that the model lacks (many have no padding) is added.

    Args:
        model: bytes of a SentencePiece model.
    Raises:
        ValueError: `model` is not a SentencePiece model.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise InputError("Expected a SentencePiece model. Received: other bytes.") from error
    if not any(piece.type == Piece.UNKNOWN for piece in proto.pieces):
        raise InputError(
            "Expected a SentencePiece model. Received: a model without an unknown token."
        )
    spec = proto.trainer_spec
    special = {
        place: Piece(piece=name, score=0.0, type=Piece.CONTROL)
        for place, name in (
            (PAD_ID, spec.pad_piece),
            (START_ID, spec.bos_piece),
            (END_ID, spec.eos_piece),
        )
    }
    special[UNKNOWN_ID] = next(piece for piece in proto.pieces if piece.type == Piece.UNKNOWN)
    names = {piece.piece for piece in special.values()}
    pieces = [special[place] for place in sorted(special)]
    pieces += [piece for piece in proto.pieces if piece.piece not in names]

    result = sentencepiece_model_pb2.ModelProto()
    result.CopyFrom(proto)
    del result.pieces[:]
    result.pieces.extend(pieces)
    result.trainer_spec.pad_id = PAD_ID
    result.trainer_spec.unk_id = UNKNOWN_ID
    result.trainer_spec.bos_id = START_ID
    result.trainer_spec.eos_id = END_ID
    result.trainer_spec.vocab_size = len(pieces)
    return result.SerializeToString()
