"""Both forms of the main job: a study on a modelled GPU, and one of real probes on the host."""

import json

import support
from json_schema import faults
from support import NOTHING_FITS


class ModelledStudy(support.Case):
    WORDS = ("tune", "--model", "llama2-13b", "--seq-len", 2048, "--device", "model:mi210",
             "--framework", "hf-sdpa+deepspeed")

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def test_people_see_a_recommendation_and_programs_the_same(self):
        text = self.client(*self.WORDS).stdout
        for words in ("study 1  llama2-13b", "modelled", "recommended", "evidence PREDICTED",
                      "tok/s", "GiB of", "limited by", "runners-up",
                      "hbmtune export 1 --format deepspeed"):
            self.assertIn(words, text)
        self.assertNotIn("\x1b", text, "colour where there is no terminal")
        schema = json.loads(self.client("schema", "recommend").stdout)
        answer = self.client_json("recommend", 1)
        self.assertEqual(faults(schema, answer), [])
        self.assertEqual(answer["evidence"], "PREDICTED")
        self.assertNotIn("measurement", answer)
        self.assertLessEqual(answer["estimate"]["peak_used_bytes"],
                             answer["estimate"]["ceiling_bytes"])
        self.assertEqual(len(answer["runners_up"]), 5)

    def test_the_same_seed_gives_the_same_answer(self):
        first = self.client_json(*self.WORDS, "--seed", 3)
        second = self.client_json(*self.WORDS, "--seed", 3)
        self.assertEqual(first["train_config"], second["train_config"])
        self.assertNotEqual(first["study"], second["study"])

    def test_a_pin_holds_for_every_trial(self):
        self.client(*self.WORDS, "--checkpoint.every", 1, "--pin", "offload=none", "--detach")
        self.wait_for_study()
        shown = self.client_json("show", 1)
        self.assertTrue(shown["trials"])
        for trial in shown["trials"]:
            self.assertEqual(trial["train_config"]["checkpoint"]["every"], 1)
            self.assertEqual(trial["train_config"]["offload"]["optimizer"], "none")

    def test_nothing_fits_says_the_least_and_what_would_help(self):
        words = ("tune", "--model", "llama2-70b", "--device", "model:mi210", "--framework",
                 "hf-sdpa")
        text = self.client(*words, code=NOTHING_FITS).stdout
        self.assertIn("nothing fits in", text)
        self.assertIn("the least is", text)
        answer = self.client_json(*words, code=NOTHING_FITS)
        self.assertNotIn("train_config", answer)
        shortfall = answer["shortfall"]
        self.assertGreater(shortfall["estimate"]["peak_used_bytes"],
                           shortfall["estimate"]["ceiling_bytes"])
        schema = json.loads(self.client("schema", "tune").stdout)
        self.assertEqual(faults(schema, answer), [])


class HostStudy(support.Case):
    def test_real_probes_find_the_limit_and_stay_under_it(self):
        self.start_daemon()
        answer = self.client_json(*self.host_study())
        schema = json.loads(self.client("schema", "tune").stdout)
        self.assertEqual(faults(schema, answer), [])
        self.assertEqual(answer["evidence"], "MEASURED")
        best = answer["measurement"]
        self.assertEqual(best["outcome"], "OK")
        self.assertGreater(best["tokens_per_second"], 0)
        self.assertLessEqual(best["peak_used_bytes"], 96 << 20)
        self.check_journal(answer)
        self.check_out_of_memory_trial()
        if answer["limited_by"] == "memory":
            self.check_limit(answer["train_config"])

    def check_journal(self, answer):
        """As many probes really ran, each once, as the answer says."""
        finished = self.finished_trials()
        self.assertEqual(len(finished), len(set(finished)))
        self.assertEqual(len(finished), answer["trials"])

    def check_out_of_memory_trial(self):
        """One at least, which says what was asked for, what was free, the phase and the op."""
        trials = [t["measurement"] for t in self.client_json("show", 1)["trials"]]
        failed = [m for m in trials if m["outcome"] == "OUT_OF_MEMORY"]
        self.assertTrue(failed, [m["outcome"] for m in trials])
        for measurement in failed:
            self.assertGreater(measurement["requested_bytes"], 0)
            self.assertLess(measurement["free_bytes"], measurement["requested_bytes"] * 2)
            self.assertTrue(measurement["phase"])
            self.assertTrue(measurement["op"])
            self.assertTrue(measurement["message"])

    def check_limit(self, config):
        """1.25 × the winner's micro-batch, all else equal, does not fit."""
        larger = -(-config["micro_batch"] * 5 // 4)
        pins = {"micro-batch": larger, "grad-accum": 1,
                "checkpoint.every": config["checkpoint"]["every"],
                "checkpoint.attention": config["checkpoint"]["attention"],
                "checkpoint.mlp": config["checkpoint"]["mlp"],
                "param-dtype": config["param_dtype"], "compute-dtype": config["compute_dtype"]}
        words = [word for field, value in pins.items() for word in ("--pin", f"{field}={value}")]
        self.client(*self.host_study(), *words, code=NOTHING_FITS)
        outcomes = [rest.split()[-1] for event, trial, rest in self.journal_lines()
                    if event == "finished" and trial.startswith("studies/2/")]
        self.assertTrue(outcomes)
        self.assertEqual(set(outcomes), {"OUT_OF_MEMORY"})


if __name__ == "__main__":
    support.main()
