"""YAML as the core schema of YAML 1.2 reads it (https://yaml.org/spec/1.2.2/#103-core-schema).

PyYAML alone follows YAML 1.1, which reads 010 as 8, 1:30 as 90, `no` as false and 1e-3 as text,
and lets the last of two equal keys win.
"""

import math
import re

import yaml

from keras_transformer.errors import InputError

MAX_CHARACTERS = 2**18
"""Characters of a text, which take a second or two to read, and that its aliases may add to it:
each stands for a value that may hold further ones."""
MAX_DIGITS = 1000
"""Maximum digits of a number. Python refuses to print one of more than 4,300 digits."""


def parse_yaml(text):
    """Returns the value of a YAML text; `<<` merges one mapping into another.

    Raises:
        ValueError: the text is not YAML or too long, a mapping has a key twice, or aliases stand
            for more than can be worth it; the message is one line.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"Expected YAML of at most {MAX_CHARACTERS:,} characters. Received: more.")
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise InputError("Expected YAML. Received: text that is nested too deeply.") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise InputError(f"Expected YAML. Received: {reason}.") from None


def to_yaml(value):
    """Returns the YAML text of plain values, which YAML 1.1 and 1.2 read in the same way."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def yaml_word(value):
    """Returns a plain value as YAML writes it, such as `null` for None."""
    return to_yaml(value).partition("\n")[0]


def _whole_number(text):
    if len(text) > MAX_DIGITS:
        raise InputError(
            f"Expected a number of at most {MAX_DIGITS:,} digits. Received: one of {len(text):,}."
        )
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


def _number(text):
    return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))


# tag name: (pattern of its texts, conversion); the first match counts
_SCALARS = {
    "null": (r"null|Null|NULL|~|", lambda text: None),
    "bool": (r"true|True|TRUE|false|False|FALSE", lambda text: text.lower() == "true"),
    "int": (r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _whole_number),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        _number,
    ),
    "merge": (r"<<", str),
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}
    yaml_constructors = {
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (*(f"tag:yaml.org,2002:{name}" for name in ("str", "seq", "map")), None)
    }

    def get_single_node(self):
        node, text = super().get_single_node(), self.buffer or ""
        if node is not None and _size(node, {}) > len(text) + MAX_CHARACTERS:
            raise InputError(
                f"Expected YAML whose aliases stand for at most {MAX_CHARACTERS:,} characters. "
                "Received: more, or an alias within its own value. Write the values out."
            )
        return node

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise InputError(
                        f"Expected each key once. Received: {key.value!r} a second time, on line "
                        f"{key.start_mark.line + 1}. Put all its values in one place."
                    )
                seen.add((key.tag, key.value))
        return node


def _size(node, sizes):
    """Returns the number of characters of a node, in which each alias is replaced by its value.

    Args:
        sizes: dict from the nodes that were seen to their sizes; infinite while one is not known.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1 + len(node.value)
    if node not in sizes:
        sizes[node] = math.inf
        is_mapping = isinstance(node, yaml.MappingNode)
        parts = [part for pair in node.value for part in pair] if is_mapping else node.value
        sizes[node] = 2 + sum(_size(part, sizes) for part in parts)
    return sizes[node]


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 (as in PyYAML) or YAML 1.2 would read as something else."""


def _constructor(name, pattern, convert):
    def construct(loader, node):
        text = loader.construct_scalar(node)
        if not pattern.match(text):
            raise yaml.constructor.ConstructorError(
                None, None, f"expected !!{name}, found {text!r}", node.start_mark
            )
        return convert(text)

    return construct


for _name, (_pattern, _convert) in _SCALARS.items():
    _tag, _whole = f"tag:yaml.org,2002:{_name}", re.compile(rf"(?:{_pattern})\Z")
    _Loader.add_implicit_resolver(_tag, _whole, None)
    _Loader.add_constructor(_tag, _constructor(_name, _whole, _convert))
    _Dumper.add_implicit_resolver(_tag, _whole, None)
