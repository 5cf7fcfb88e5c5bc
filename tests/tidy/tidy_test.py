#!/usr/bin/env python3
"""tidy.py must find what it promises to find: each case plants one fault in a small tree."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TIDY = pathlib.Path(__file__).resolve().parent / "tidy.py"

CASES = {
    "an include against the layers": (
        "kernels/core/a.h", '#pragma once\n#include "tuner/x.h"\n', "above this layer"),
    "a library outside its room": (
        "tuner/a.h", "#pragma once\n#include <sqlite3.h>\n", "may be included only below"),
    "a long line": ("kernels/core/a.h", "// " + "x" * 120 + "\n", "columns"),
    "a long function": (
        "kernels/core/a.h", "inline void F() {\n" + "  G();\n" * 80 + "}\n", "a function of"),
    "a long file": ("kernels/core/a.h", "// x\n" * 401, "401 lines"),
    "a source file outside CMake": ("kernels/core/a.cc", "int x;\n", "no CMakeLists.txt"),
    "a header that is not first": (
        "kernels/core/a.cc", "#include <vector>\n", "first include", "kernels/core/a.h"),
    "a skipped test": (
        "tests/a_test.cc", "TEST(A, B) { GTEST" + "_SKIP(); }\n", "skips a test"),
    "a path of one machine": ("kernels/core/a.h", "// see /ro" + "ot/x\n", "path of one machine"),
}


class TidyFindsFaults(unittest.TestCase):
    def run_on(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            files = {"tests/tidy/tidy.py": TIDY.read_text(), "tests/tidy/skips.txt": "", **files}
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return subprocess.run([sys.executable, root / "tests/tidy/tidy.py"],
                                  capture_output=True, text=True)

    def test_nothing_in_a_clean_tree(self):
        done = self.run_on({"kernels/core/a.h": "#pragma once\n"})
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "tidy: nothing found"))

    def test_each_planted_fault(self):
        for what, (name, text, sentence, *beside) in CASES.items():
            with self.subTest(what):
                done = self.run_on({name: text, **{b: "" for b in beside}})
                self.assertEqual(done.returncode, 1, done.stdout)
                self.assertIn(sentence, done.stdout)


if __name__ == "__main__":
    unittest.main()
