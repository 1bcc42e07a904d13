"""Moves the pieces of any SentencePiece model to the package's places for special ids."""

from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from keras_transformer.special_ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID

Piece = sentencepiece_model_pb2.ModelProto.SentencePiece


def with_our_special_ids(model):
    """Returns `model` with its pieces so ordered that ids 0 to 3 are pad, unknown, start, end.

    The other pieces keep their order, scores and types, so text splits into the same pieces.
    A special piece that the model lacks (many have no padding) is added.

    Args:
        model: bytes of a SentencePiece model.
    Raises:
        ValueError: `model` is no SentencePiece model.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except DecodeError as error:
        raise ValueError("Expected a SentencePiece model. Received: bytes of no model.") from error
    if not any(piece.type == Piece.UNKNOWN for piece in proto.pieces):
        raise ValueError(
            "Expected a SentencePiece model. Received: a model without an unknown piece."
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
