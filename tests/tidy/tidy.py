#!/usr/bin/env python3
"""Keeps the house in the shape that the READMEs promise; run by CTest from the repository's root.

Checks: includes run one way; generated headers and libraries stay in their rooms; every header
stands alone; 100 columns, functions of at most 70 lines, files of at most 400; every source file
and every test is named in a CMakeLists.txt; no test is skipped outside skips.txt; no path of one
machine is committed. Prints one line a finding, "file:line: what", and exits 1 if there is any.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 400

# Folder -> what it may include, most specific folder first. "own" is the folder itself.
LAYERS = [
    ("kernels/core", ["kernels/core"]),
    ("kernels/model", ["kernels/core", "kernels/model"]),
    ("kernels/program", ["kernels/core", "kernels/program"]),
    ("kernels/memory", ["kernels/core", "kernels/memory"]),
    ("kernels/comm", ["kernels/core", "kernels/program", "kernels/comm"]),
    ("kernels/ops", ["kernels/core", "kernels/program", "kernels/ops"]),
    ("kernels/device", ["kernels/core", "kernels/program", "kernels/memory", "kernels/ops",
                        "kernels/comm", "kernels/device"]),
    ("kernels/lowering", ["kernels/core", "kernels/model", "kernels/program", "kernels/ops",
                          "kernels/lowering"]),
    ("kernels/step", ["kernels/core", "kernels/model", "kernels/program", "kernels/memory",
                      "kernels/comm", "kernels/ops", "kernels/device", "kernels/lowering",
                      "kernels/step"]),
    ("kernels/probe", ["kernels", "proto"]),
    ("proto", ["proto", "kernels/core"]),
    ("tuner", ["kernels", "tuner"]),
    ("client", ["client", "proto", "kernels/core"]),
    ("daemon", ["daemon", "proto", "tuner", "kernels"]),
    ("tests", ["tests", "daemon", "client", "proto", "tuner", "kernels"]),
]

# Libraries that may be included only below these folders.
ROOMS = {
    r"sqlite3\.h": ["daemon/store", "tests"],
    r"spdlog/": ["daemon", "tests"],
    r"prometheus/": ["daemon", "tests"],
    r"civetweb\.h|CivetServer\.h": ["daemon/http", "tests"],
    r"grpcpp/|grpc/": ["daemon", "client", "tests"],
    r".*\.pb\.h": ["proto", "daemon", "client", "kernels/probe", "tests"],
    r"CLI/": ["client", "daemon", "kernels/probe", "tests"],
    r"(dnnl|oneapi).*\.h.*": ["kernels/ops", "kernels/device", "tests"],
    r"gloo/": ["kernels/comm", "tests"],
}

SOURCE = {".cc", ".h", ".hip", ".py", ".sh", ".cmake"}
findings = []


def report(path, line, text):
    findings.append(f"{path.relative_to(ROOT)}:{line}: {text}")


def tracked_files():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True)
    if listed.returncode == 0:
        names = listed.stdout.split("\n")
    else:
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*") if "build" not in p.parts]
    return [ROOT / n for n in names if n and (ROOT / n).is_file()]


def allowed_for(relative):
    for folder, allowed in LAYERS:
        if relative.startswith(folder + "/"):
            return allowed
    return None


def check_includes(path, lines):
    relative = str(path.relative_to(ROOT))
    allowed = allowed_for(relative)
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if not match:
            continue
        target = match.group(2)
        for pattern, folders in ROOMS.items():
            if re.match(pattern, target) and not any(relative.startswith(f) for f in folders):
                report(path, number, f"{target} may be included only below {', '.join(folders)}")
        if match.group(1) != '"' or allowed is None or target.endswith(".inc"):
            continue
        top = target.split("/")[0]
        if top not in {"kernels", "tuner", "daemon", "client", "proto", "tests"}:
            if target.startswith("absl/"):
                report(path, number, f"<{target}>: libraries stand in angle brackets")
            elif not target.endswith(".pb.h"):
                report(path, number, f'"{target}" is not relative to the repository\'s root')
        elif not any(target.startswith(a + "/") for a in allowed):
            report(path, number, f"{target} is above this layer")


def check_stands_alone(path, lines):
    header = path.with_suffix(".h")
    if path.suffix != ".cc" or not header.exists():
        return
    for number, line in enumerate(lines, 1):
        if line.startswith("#include"):
            if str(header.relative_to(ROOT)) not in line:
                report(path, number, f"the first include must be {header.relative_to(ROOT)}, "
                       "so that the header proves to stand alone")
            return


def check_sizes(path, lines):
    if len(lines) > MAX_FILE_LINES:
        report(path, len(lines), f"{len(lines)} lines, at most {MAX_FILE_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            report(path, number, f"{len(line)} columns, at most {MAX_COLUMNS}")


def strip_code(line):
    line = re.sub(r"'(\\.|[^'\\])'", "''", line)
    line = re.sub(r'"(\\.|[^"\\])*"', '""', line)
    return re.sub(r"//.*", "", line)


def check_functions(path, lines):
    """A function opens on a line that ends in '{' with a ')' in its statement."""
    not_functions = re.compile(r"^\s*(if|for|while|switch|do|else|namespace|struct|class|enum|"
                               r"union|return|extern|\}|case|default)\b")
    depth, statement, start = 0, "", 0
    stack = []
    in_raw = False
    for number, raw in enumerate(lines, 1):
        if 'R"' in raw and ')' + '"' not in raw:
            in_raw = True
        if in_raw:
            in_raw = not re.search(r'\)[A-Za-z_]*"', raw)
            continue
        line = strip_code(raw)
        if not statement.strip():
            start = number
        statement += line + " "
        for char in line:
            if char == "{":
                opens = ")" in statement and not not_functions.match(statement.strip())
                stack.append((depth, start if opens else 0))
                depth += 1
                statement = ""
                start = number
            elif char == "}" and stack:
                depth, began = stack.pop()
                outer = any(s[1] for s in stack)
                if began and not outer and number - began + 1 > MAX_FUNCTION_LINES:
                    report(path, began, f"a function of {number - began + 1} lines, at most "
                           f"{MAX_FUNCTION_LINES}")
                statement = ""
            elif char == ";":
                statement = ""


def cmake_text(folder):
    text = ""
    while True:
        lists = folder / "CMakeLists.txt"
        if lists.exists():
            text += lists.read_text()
        if folder == ROOT:
            return text
        folder = folder.parent


def check_in_cmake(path):
    relative = path.relative_to(ROOT)
    is_test = relative.parts[:2] == ("tests", "integration") and path.name.startswith("test_")
    if path.suffix == ".cc" or (path.suffix == ".py" and is_test):
        name = path.name if path.suffix == ".cc" else path.stem
        if not re.search(rf"\b{re.escape(name)}\b", cmake_text(path.parent)):
            report(path, 1, "is named in no CMakeLists.txt")


def check_skips(path, lines, permitted):
    pattern = r"GTEST_SKIP|\bDISABLED_|unittest\.skip|skipTest\(|pytest\.mark\.skip"
    for number, line in enumerate(lines, 1):
        if re.search(pattern, line) and path.name not in permitted:
            report(path, number, "skips a test; tests/tidy/skips.txt does not permit it")


def check_machine_paths(path, lines):
    for number, line in enumerate(lines, 1):
        if re.search(r"/(work|farm|root)/|/home/[a-z]+/", line):
            report(path, number, "a path of one machine")


def main():
    permitted = {line.split()[0] for line in
                 (ROOT / "tests/tidy/skips.txt").read_text().splitlines()
                 if line.strip() and not line.startswith("#")}
    for path in tracked_files():
        relative = str(path.relative_to(ROOT))
        named = path.suffix in SOURCE or path.name == "CMakeLists.txt"
        if not named or relative.startswith("tests/data/"):
            continue
        lines = path.read_text(errors="replace").split("\n")[:-1]
        check_sizes(path, lines)
        if path.suffix in {".cc", ".h", ".hip"}:
            check_includes(path, lines)
            check_stands_alone(path, lines)
            check_functions(path, lines)
        check_in_cmake(path)
        if not relative.startswith("tests/tidy/"):
            check_skips(path, lines, permitted)
            check_machine_paths(path, lines)
    print("\n".join(findings) if findings else "tidy: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
