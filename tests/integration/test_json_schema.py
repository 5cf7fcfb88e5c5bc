"""The checker itself: a checker that accepts everything would prove nothing."""

import unittest

from json_schema import faults

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "kind": {"type": "string", "enum": ["a", "b"]},
                   "list": {"type": "array", "items": {"type": "number"}}},
    "required": ["n"],
    "additionalProperties": False,
}


class Checker(unittest.TestCase):
    def test_accepts_what_fits(self):
        self.assertEqual(faults(SCHEMA, {"n": 1, "kind": "a", "list": [1, 2.5]}), [])

    def test_finds_each_fault(self):
        for value in ({}, {"n": 1.5}, {"n": True}, {"n": 1, "kind": "c"}, {"n": 1, "list": ["x"]},
                      {"n": 1, "more": 2}, []):
            self.assertEqual(len(faults(SCHEMA, value)), 1, value)

    def test_refuses_keywords_that_it_does_not_know(self):
        with self.assertRaises(ValueError):
            faults({"minimum": 3}, 1)


if __name__ == "__main__":
    unittest.main()
