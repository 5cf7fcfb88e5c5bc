#!/usr/bin/env python3
"""hbmtune-smi with the real ROCm SMI library on fake sysfs trees, in a private mount namespace.

Usage: test_rocm_smi.py HBMTUNE_SMI FAKE_NODE. Needs root: it mounts an overlay on /sys/class.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SMI, FAKE_NODE = sys.argv[1:3]
MOUNT = """
mkdir -p "$1/work" && mount --make-rprivate / &&
mount -t overlay overlay -o "lowerdir=/sys/class,upperdir=$1/class,workdir=$1/work" /sys/class &&
mount -t tmpfs -o mode=1777 tmpfs /dev/shm && shift && exec "$@"
"""


def ask(root, requests="sample\n"):
    command = ["unshare", "-m", "sh", "-c", MOUNT, "sh", root, SMI]
    return subprocess.run(command, input=requests, capture_output=True, text=True, timeout=60)


class RocmSmi(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def make(self, kind, count):
        subprocess.run([FAKE_NODE, str(self.root), kind, str(count)], check=True)

    def test_reads_two_mi210(self):
        self.make("mi210", 2)
        done = ask(str(self.root), "sample\nsample\n")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(answers), 2, done.stderr)
        found = {d["pci_address"]: d for d in answers[1]["devices"]}
        self.assertEqual(set(found), {"0000:03:00.0", "0000:04:00.0"})
        self.assertEqual(found["0000:03:00.0"]["pcie_received_bytes_per_second"], 2000.0)

    def test_says_why_an_mi300x_is_beyond_an_old_library(self):
        self.make("mi300x", 1)
        done = ask(str(self.root))
        answer = json.loads(done.stdout)
        self.assertTrue("devices" in answer or "rsmi_init failed" in answer["error"], answer)

    def test_is_harmless_without_a_gpu(self):
        (self.root / "class").mkdir()
        done = ask(str(self.root))
        self.assertIn("rsmi_init failed with status 8", json.loads(done.stdout)["error"])
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
