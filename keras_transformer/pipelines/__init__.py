"""Pipelines of Apache Beam, for text that outgrows one machine (extra `beam`).

python -m keras_transformer.pipelines translate --help
"""
