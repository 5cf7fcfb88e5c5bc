"""The part of JSON Schema that the client's own schemas use; what it does not know it refuses."""

KNOWN = {"$schema", "title", "description", "type", "properties", "required",
         "additionalProperties", "items", "enum"}

TYPES = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
}


def faults(schema, value, path="$"):
    """Everything in which `value` is not as the schema says."""
    if unknown := set(schema) - KNOWN:
        raise ValueError(f"{path}: the checker does not know {unknown}")
    if "type" in schema and not TYPES[schema["type"]](value):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{path}: {value!r} is not one of {schema['enum']}"]
    if isinstance(value, dict):
        return object_faults(schema, value, path)
    if isinstance(value, list):
        return [fault for i, item in enumerate(value)
                for fault in faults(schema["items"], item, f"{path}[{i}]")]
    return []


def object_faults(schema, value, path):
    properties = schema.get("properties", {})
    found = [f"{path}: {key} is missing" for key in schema.get("required", []) if key not in value]
    for key, item in value.items():
        if key in properties:
            found += faults(properties[key], item, f"{path}.{key}")
        elif schema.get("additionalProperties") is False:
            found.append(f"{path}: {key} is in no schema")
    return found
