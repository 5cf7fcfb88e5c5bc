"""What each verb prints: JSON as its schema says, files for other programs, a terminal's width."""

import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import support
from json_schema import faults

MI210 = ("--model", "llama2-7b", "--seq-len", 1024, "--device", "model:mi210", "--framework",
         "hf-sdpa+deepspeed")


class Output(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def check(self, verb, *words):
        schema = json.loads(self.client("schema", verb).stdout)
        answer = self.client_json(verb, *words)
        self.assertEqual(faults(schema, answer), [])
        return answer

    def test_devices(self):
        devices = {device["device"]: device for device in self.check("devices")}
        self.assertEqual(devices["host"]["kind"], "host")
        self.assertEqual(devices["model:mi210"]["memory_bytes"] >> 30, 63)
        self.assertIn("model:mi300x", self.client("devices").stdout)

    def test_estimate_has_the_promised_fields(self):
        answer = self.check("estimate", *MI210, "--precision", "bf16", "--micro-batch", 1,
                            "--checkpoint.every", 1, "--zero.stage", 2, "--world-size", 2)
        for field in ("fits", "peak_allocated_bytes", "peak_reserved_bytes", "peak_used_bytes",
                      "peak_phase", "breakdown", "host_bytes", "step_seconds",
                      "tokens_per_second", "evidence", "interval"):
            self.assertIn(field, answer)
        self.assertEqual(answer["train_config"]["zero"]["stage"], 2)
        self.assertEqual(answer["workload"]["model"]["name"], "llama2-7b")
        allocated = sum(o["bytes"] for o in answer["breakdown"]
                        if o["category"] not in ("context", "libraries"))
        self.assertEqual(allocated, answer["peak_allocated_bytes"])
        self.assertLessEqual(answer["peak_allocated_bytes"], answer["peak_reserved_bytes"])
        self.assertLessEqual(answer["peak_reserved_bytes"], answer["peak_used_bytes"])

    def test_estimate_for_people_names_owners_and_verdict(self):
        text = self.client("estimate", *MI210, "--micro-batch", 64).stdout
        for words in ("weights", "allocated (", "reserved", "used", "does not fit", "tok/s",
                      "evidence PREDICTED"):
            self.assertIn(words, text)

    def test_estimate_from_a_study_and_from_one_of_its_trials(self):
        self.client("tune", *MI210)
        best = self.client_json("recommend", 1)
        again = self.check("estimate", "--from", 1)
        self.assertEqual(again["train_config"], best["train_config"])
        self.assertEqual(again["peak_used_bytes"], best["estimate"]["peak_used_bytes"])
        larger = self.check("estimate", "--from", 1, "--micro-batch", 512)
        self.assertGreater(larger["peak_used_bytes"], again["peak_used_bytes"])
        trial = self.client_json("show", 1)["trials"][0]
        first = self.check("estimate", "--from", "1/" + trial["trial"].rpartition("/")[2])
        self.assertEqual(first["train_config"], trial["train_config"])

    def test_studies_show_and_recommend(self):
        self.assertIn("no studies yet", self.client("studies").stdout)
        self.client("tune", *MI210)
        self.assertEqual(len(self.check("studies")), 1)
        shown = self.check("show", 1)
        self.assertEqual(shown["study"]["state"], "succeeded")
        self.assertEqual(shown["recommendation"]["trials"], len(shown["trials"]))
        self.check("recommend", 1)
        by_workload = self.check("recommend", *MI210)
        self.assertEqual(by_workload["study"], "studies/1")
        text = self.client("show", 1, "--why").stdout
        self.assertIn("recommended", text)
        self.assertIn("differs in", text)

    def test_exports_are_what_their_programs_read(self):
        self.client("tune", *MI210)
        deepspeed = json.loads(self.client("export", 1, "--format", "deepspeed").stdout)
        best = self.client_json("recommend", 1)["train_config"]
        self.assertEqual(deepspeed["train_micro_batch_size_per_gpu"], best["micro_batch"])
        self.assertEqual(deepspeed["zero_optimization"]["stage"], best["zero"]["stage"])
        arguments = json.loads(self.client("export", 1, "--format", "hf").stdout)
        self.assertEqual(arguments["per_device_train_batch_size"], best["micro_batch"])
        self.assertTrue(self.client("export", 1, "--format", "accelerate").stdout)
        self.client("export", 1, "--format", "env")
        whole = json.loads(self.client("export", 1, "--format", "hbmtune").stdout)
        self.assertEqual(whole["train_config"], best)
        trial = self.client_json("show", 1)["trials"][0]
        number = trial["trial"].rpartition("/")[2]
        one = json.loads(self.client("export", 1, "--trial", number, "--format", "hbmtune").stdout)
        self.assertEqual(one["train_config"], trial["train_config"])
        self.assertIn("has no trial 9999", self.sentence("export", 1, "--trial", 9999, "--format",
                                                         "env"))


class OnATerminal(support.Case):
    """The client behind a pseudo-terminal of 60 columns."""

    COLUMNS = 60

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def run_on_terminal(self, *words, code=0, **variables):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, self.COLUMNS, 0, 0))
        client = subprocess.Popen([support.BIN / "hbmtune", *map(str, words)], stdin=follower,
                                  stdout=follower, stderr=follower, cwd=self.folder,
                                  env=self.environment(TERM="xterm", **variables))
        self.children.append(client)
        os.close(follower)
        text = b""
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError as error:
                self.assertEqual(error.errno, errno.EIO)
                break
            if not chunk:
                break
            text += chunk
        os.close(leader)
        self.assertEqual(client.wait(timeout=60), code, text)
        return text.decode()

    def test_nothing_is_wider_than_the_terminal(self):
        text = self.run_on_terminal("tune", *MI210)
        self.assertIn("\r\x1b[2K", text, "no live line")
        plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)
        for line in re.split(r"[\r\n]+", plain):
            self.assertLessEqual(len(line), self.COLUMNS, line)
        self.assertIn("recommended", plain)

    def test_an_error_is_wrapped_between_words_and_only_here(self):
        words = ("estimate", "--model", "gpt2", "--seq-len", 100_000, "--device", "model:mi210")
        lines = self.run_on_terminal(*words, code=support.USAGE).splitlines()
        self.assertGreater(len(lines), 1)
        self.assertLessEqual(max(map(len, lines)), self.COLUMNS)
        self.assertEqual(" ".join(lines), "hbmtune: " + self.sentence(*words))

    def test_the_next_commands_reach_the_same_daemon_and_are_not_cut(self):
        text = self.run_on_terminal("tune", *MI210, "--socket", self.socket)
        tail = f"1 --socket {self.socket}"
        self.assertIn(f"next:  hbmtune export {tail} --format ", text)
        self.assertIn(f"       hbmtune show {tail} --why\r\n", text)
        self.assertIn(f"       hbmtune estimate --from {tail}\r\n", text)

    def test_colour_unless_no_color_is_set(self):
        self.assertRegex(self.run_on_terminal("tune", *MI210), r"\x1b\[\d+m")
        self.assertNotRegex(self.run_on_terminal("tune", *MI210, NO_COLOR="1"), r"\x1b\[\d+m")


if __name__ == "__main__":
    support.main()
