"""A config as it stands in its file: YAML read strictly, held against the schema, defaults filled."""

import copy
import math
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from midtrace.errors import InputError

SCHEMA = Path(__file__).parents[2] / "schemas" / "config.schema.yaml"
TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
NAME = "letters, digits, '.', '_' and '-', beginning with a letter or digit"


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The JSON schema of a config."""
    return yaml.safe_load(SCHEMA.read_text(encoding="utf-8"))


def read_yaml(path: str | Path) -> Any:
    """The content of a YAML file; a key that is given twice is an error, not a silent choice of the last one."""

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen = set()
            for key, _ in node.value:
                if key.value in seen:
                    raise InputError(path, key.value, f"is given twice (again in line {key.start_mark.line + 1})", "each key once")
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return yaml.load(Path(path).read_text(encoding="utf-8"), Loader)


def conform(config: Any, where: object) -> dict[str, Any]:
    """A copy of a config with defaults filled; :class:`InputError` at the first place that the schema refuses."""
    config = copy.deepcopy(config)
    errors = sorted(_filling_validator()(schema()).iter_errors(config), key=lambda e: (len(e.absolute_path), str(e.absolute_path)))
    if errors:
        raise _schema_error(errors[0], where)
    return config


def _filling_validator() -> type:
    base = jsonschema.Draft202012Validator
    # As people mean it: 2.0 is no whole number, true is no number, and neither is .nan, which passes every bound.
    types = base.TYPE_CHECKER.redefine("integer", lambda _, value: type(value) is int)
    types = types.redefine("number", lambda _, value: _is_number(value))

    def properties(validator, values, instance, subschema):
        if isinstance(instance, dict):
            for key, sub in values.items():
                if "default" in sub:
                    instance.setdefault(key, copy.deepcopy(sub["default"]))
                if sub.get("type") == "number" and type(instance.get(key)) is int and _is_number(instance[key]):
                    instance[key] = float(instance[key])  # 1 instead of 1.0 must not look like another config
        yield from base.VALIDATORS["properties"](validator, values, instance, subschema)

    def additional(validator, value, instance, subschema):
        if isinstance(instance, dict) and isinstance(value, dict):
            for key in list(instance):
                if instance[key] is None and "default" in value and key not in subschema.get("properties", {}):
                    instance[key] = copy.deepcopy(value["default"])  # "baseline:" with nothing after it
        yield from base.VALIDATORS["additionalProperties"](validator, value, instance, subschema)

    return jsonschema.validators.extend(base, {"properties": properties, "additionalProperties": additional}, type_checker=types)


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    return (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) <= sys.float_info.max)


def _schema_error(error: jsonschema.ValidationError, where: object) -> InputError:
    path = ".".join(str(part) for part in error.absolute_path)
    rule, value = error.validator, error.validator_value
    if "propertyNames" in error.absolute_schema_path:
        return InputError(where, f"{path}.{error.instance}", "is no name", NAME)
    if rule == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = [key for key in error.instance if key not in known]
        return InputError(where, f"{path}.{unknown[0]}".lstrip("."), "unknown key", known)
    if rule == "required":
        absent = [key for key in value if key not in error.instance]
        return InputError(where, f"{path}.{absent[0]}".lstrip("."), "missing", "a value is required")
    wanted = {
        "enum": lambda: ", ".join("null" if one is None else str(one) for one in value),
        "type": lambda: " or ".join(TYPES[kind] for kind in ([value] if isinstance(value, str) else value)),
        "minimum": lambda: f"at least {value}",
        "maximum": lambda: f"at most {value}",
        "exclusiveMinimum": lambda: f"more than {value}",
        "exclusiveMaximum": lambda: f"less than {value}",
        "minItems": lambda: f"at least {value} entries",
        "maxItems": lambda: f"at most {value} entries",
        "minProperties": lambda: f"at least {value} entry",
        "minLength": lambda: "some text",
        "uniqueItems": lambda: "entries that differ",
        "pattern": lambda: NAME if value == schema()["$defs"]["name"]["pattern"] else f"text that matches {value}",
    }.get(rule, lambda: f"{rule} {value}")()
    return InputError(where, path or "config", f"is {_brief(error.instance)}", wanted)


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
