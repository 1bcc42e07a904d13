"""The tokenizers as operations of TensorFlow, which is imported with these files."""
