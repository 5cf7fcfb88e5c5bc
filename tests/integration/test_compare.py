"""`hbmtune compare`: one modelled study a device, one table."""

import json
import signal

import support
from json_schema import faults

# Few trials of a small model: seconds.
SMALL = ("compare", "--model", "gpt2", "--seq-len", 256, "--framework", "hf-sdpa",
         "--max-trials", 3)
TWO = (*SMALL, "--device", "mi210", "--device", "model:mi300x")


class Compare(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_the_answer_is_what_tune_answers_device_by_device(self):
        answer = self.client_json(*TWO, "--price", "mi210=0.5", "--price", "mi300x=100")
        self.assertEqual(faults(json.loads(self.client("schema", "compare").stdout), answer), [])
        self.assertTrue(answer["complete"])
        self.assertEqual(answer["fastest"], "model:mi300x")
        self.assertEqual(answer["cheapest"], "model:mi210")
        self.assertEqual([d["device"] for d in answer["devices"]],
                         ["model:mi210", "model:mi300x"])
        for device in answer["devices"]:
            tuned = self.client_json("tune", *SMALL[1:], "--device", device["device"])
            self.assertEqual(device["train_config"], tuned["train_config"])
            self.assertEqual(device["tokens_per_second"], tuned["estimate"]["tokens_per_second"])
            self.assertEqual(device["evidence"], "PREDICTED")
            self.assertEqual(device["margin_bytes"],
                             device["capacity_bytes"] - device["peak_used_bytes"])
            self.assertAlmostEqual(
                device["dollars_per_million_tokens"],
                device["dollars_per_hour"] / 3600 / device["tokens_per_second"] * 1e6, places=9)
        self.assertEqual(answer["devices"][1]["relative_ratio"], 1)

    def test_the_table_fits_eighty_columns_and_says_that_nothing_ran(self):
        done = self.client(*SMALL)
        for line in done.stdout.splitlines():
            self.assertLessEqual(len(line), 80, line)
        for name in ("a100-80g", "h100-80g", "mi210", "mi250x", "mi300x", "mi325x", "mi355x"):
            self.assertRegex(done.stdout, rf"(?m)^{name} +[\d,]+ +\d+ % ")
            self.assertRegex(done.stderr, rf"(?m)^{name}: 3(/\d+)? trials, best [\d,]+ tok/s, ")
        self.assertIn("is fastest: ", done.stdout)
        self.assertIn("mi250x is AMD Instinct MI250X, one GCD", done.stdout)
        self.assertIn("nothing ran on a GPU", " ".join(done.stdout.split()))
        self.assertEqual(len(self.client_json("studies")), 7)

    def test_where_nothing_fits_the_code_says_so_and_each_row_what_falls_short(self):
        words = ("compare", "--model", "llama2-70b", "--framework", "hf-sdpa", "--device", "mi210",
                 "--device", "mi300x")
        text = self.client(*words, code=support.NOTHING_FITS).stdout
        self.assertRegex(text, r"mi210 +does not fit: the least takes [\d,.]+ [GT]iB, ")
        answer = json.loads(self.client(*words, "--output", "json",
                                        code=support.NOTHING_FITS).stdout)
        self.assertEqual(answer["fastest"], "")
        self.assertGreater(answer["devices"][0]["shortfall"]["estimate"]["peak_used_bytes"],
                           answer["devices"][0]["ceiling_bytes"])

    def test_one_device_that_is_too_small_is_a_row(self):
        text = self.client("compare", "--model", "llama2-7b", "--framework", "hf-sdpa",
                           "--max-trials", 2, "--device", "mi210", "--device", "mi300x").stdout
        self.assertRegex(text, r"(?m)^mi300x +[\d,]+ +100 %")
        self.assertRegex(text, r"(?m)^mi210 +does not fit: ")

    def test_ctrl_c_cancels_all_studies(self):
        client = self.spawn_client("compare", "--model", "llama2-13b", "--framework", "fused",
                                   "--designer", "random", "--output", "json")
        support.wait_until(lambda: len(self.client_json("studies")) == 7, 60, "all are made")
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=120)
        self.assertEqual(client.returncode, support.INTERRUPTED, out + err)
        self.assertFalse(json.loads(out)["complete"])
        states = [study["state"] for study in self.client_json("studies")]
        self.assertIn("cancelled", states)
        self.assertNotIn("running", states)
        self.assertNotIn("queued", states)

    def test_words_that_cannot_be_make_no_study(self):
        for more, words in ((("--device", "mi30x"), "did you mean mi300x?"),
                            (("--price", "mi300x"), "NAME=DOLLARS"),
                            (("--price", "mi300x=free"), "dollars an hour"),
                            (("--device", "mi210", "--price", "mi300x=2"), "is not compared"),
                            (("--pin", "zero.stage=2"), "zero.stage"),
                            (("--price", "mi300x=2", "--price", "model:mi300x=3"), "two prices")):
            self.assertIn(words, self.sentence(*SMALL, *more), more)
        self.assertIn("--model is missing", self.sentence("compare"))
        self.assertEqual(self.client_json("studies"), [])


if __name__ == "__main__":
    support.main()
