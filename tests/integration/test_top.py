"""`hbmtune top` and `hbmtune watch --device`."""

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import api
import support
from api import devices

TIMEOUT = 120


class Top(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def report_leak(self, job, steps=300):
        def reports():
            for step in range(steps):
                live = (1 << 30) + step * (4 << 20)
                yield devices.ReportAllocatorRequest(
                    device="host", job_id=job, report=devices.AllocatorReport(
                        step=step, allocated_bytes=live, active_bytes=live,
                        reserved_bytes=live + (64 << 20)))

        with api.Client(self.socket) as client:
            return client.devices.ReportAllocator(reports(), timeout=TIMEOUT).findings

    def test_plain_lines_where_there_is_no_terminal(self):
        self.client(*self.host_study("--detach"))
        support.wait_until(self.finished_trials, 120, "a trial finishes")
        self.report_leak("evil\x1b[2Jjob")
        text = self.client("top", "--count", 2, "--every", 0.2).stdout
        self.assertNotIn("\x1b", text)
        self.assertEqual(len(re.findall(r"^device ", text, re.M)), 2)
        self.assertRegex(text, r"(?m)^host .*probing +study 1$")
        self.assertRegex(text, r"(?m)^ *1 +tiny +host +running +\d+ ")
        self.assertIn("evil?[2Jjob", text)
        self.assertNotIn("model:mi300x", text)

    def test_json(self):
        self.report_leak("7")
        lines = self.client("top", "--count", 2, "--every", 0.1, "--output", "json").stdout
        looks = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual(len(looks), 2)
        self.assertIn("host", [device["device"] for device in looks[0]["devices"]])
        self.assertEqual(looks[0]["findings"][0]["job_id"], "7")

    def test_a_terminal_is_drawn_in_place_and_given_back(self):
        main, side = pty.openpty()
        child = subprocess.Popen(
            [support.BIN / "hbmtune", "top", "--every", "0.1"], stdin=side, stdout=side,
            stderr=side, env=self.environment(TERM="xterm-256color"), start_new_session=True)
        self.children.append(child)
        os.close(side)
        text = b""
        deadline = time.monotonic() + 60
        while text.count(b"\x1b[H") < 3 and time.monotonic() < deadline:
            if select.select([main], [], [], 0.2)[0]:
                text += os.read(main, 65536)
        child.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(main, 65536):
                text += chunk
        except OSError:
            pass  # its end of the terminal is closed
        os.close(main)
        self.assertEqual(child.wait(timeout=support.PATIENCE), support.INTERRUPTED)
        self.assertTrue(text.startswith(b"\x1b[?1049h"), text[:40])
        self.assertTrue(text.rstrip().endswith(b"\x1b[?1049l"), text[-40:])
        self.assertGreaterEqual(text.count(b"\x1b[H"), 3)

    def test_a_device_as_csv(self):
        self.report_leak("a,b", steps=3)
        text = self.client("watch", "--device", "host", "--csv", "--count", 3, "--every",
                           0.1).stdout
        rows = list(csv.DictReader(io.StringIO(text)))
        self.assertEqual(len(rows), 3)
        self.assertEqual({row["job_id"] for row in rows}, {"a,b"})
        self.assertEqual(rows[0]["step"], "2")
        self.assertEqual(rows[0]["used_bytes"], "", "the host's driver says nothing: not 0")
        self.assertEqual(int(rows[0]["reserved_bytes"]) - int(rows[0]["active_bytes"]), 64 << 20)
        self.assertRegex(rows[0]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

    def test_a_device_as_json_and_text(self):
        lines = self.client("watch", "--device", "host", "--count", 2, "--every", 0.1, "--output",
                            "json").stdout.splitlines()
        self.assertEqual([json.loads(line)["device"] for line in lines], ["host", "host"])
        self.assertIn("host", self.client("watch", "--device", "host", "--count", 1).stdout)

    def test_words_that_disagree(self):
        self.assertIn("--device", self.sentence("watch"))
        self.sentence("watch", 1, "--device", "host")
        self.assertIn("--csv", self.sentence("watch", 1, "--csv"))
        self.sentence("watch", "--device", "host", "--csv", "--output", "json")
        self.sentence("top", "--every", 0)
        self.assertIn("nothing", self.sentence("watch", "--device", "nothing"))


if __name__ == "__main__":
    support.main()
