"""Views of an estimate: timeline, what would change it, sweeps, ladders, verified recordings."""

import csv
import io
import json
import pathlib
import re
import signal
import time
import xml.etree.ElementTree

import support
from json_schema import faults

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
JOB = ("--model", "llama2-7b", "--seq-len", 1024, "--device", "model:mi210", "--framework",
       "hf-sdpa")
SMALL = ("--model", "gpt2", "--seq-len", 256, "--device", "model:mi210", "--framework", "hf-sdpa",
         "--precision", "bf16")


class Views(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def check(self, verb, *words, **options):
        schema = json.loads(self.client("schema", verb).stdout)
        answer = self.client_json(verb, *words, **options)
        self.assertEqual(faults(schema, answer), [])
        return answer

    def assert_narrow(self, text, columns=80):
        for line in text.splitlines():
            self.assertLessEqual(len(line), columns, line)

    # estimate --timeline, --explain

    def test_a_timeline_is_drawn_and_is_the_estimate(self):
        words = ("estimate", *SMALL, "--micro-batch", 4)
        estimate = self.client_json(*words)
        for ending in ("svg", "html", "json"):
            self.client(*words, "--timeline", f"step.{ending}")
        svg = xml.etree.ElementTree.parse(self.folder / "step.svg").getroot()
        text = " ".join(svg.itertext())
        for word in ("gpt2", "model:mi210", "PREDICTED", "ceiling", "forward", "backward",
                     "weights", "GiB"):
            self.assertIn(word, text)
        self.assertIn("category_bytes", (self.folder / "step.html").read_text())
        series = json.loads((self.folder / "step.json").read_text())
        schema = json.loads(self.client("schema", "timeline").stdout)
        self.assertEqual(faults(schema, series), [])
        points = series["timeline"]["points"]
        self.assertEqual(max(p["allocated_bytes"] for p in points),
                         estimate["peak_allocated_bytes"])
        self.assertEqual(max(p["reserved_bytes"] for p in points), estimate["peak_reserved_bytes"])
        for point in points:
            self.assertEqual(sum(point["category_bytes"]), point["allocated_bytes"])

    def test_timelines_that_cannot_be(self):
        self.assertIn("none of .svg", self.sentence("estimate", *SMALL, "--timeline", "a.png"))
        self.assertIn("cannot write", self.sentence("estimate", *SMALL, "--timeline",
                                                    "nowhere/a.svg", code=support.FAILED))

    def test_explain_says_what_would_make_it_fit(self):
        words = ("estimate", *JOB, "--precision", "bf16", "--micro-batch", 64, "--explain")
        text = self.client(*words).stdout
        self.assertIn("does not fit", text)
        part = text[text.index("each tunable changed alone"):]
        self.assert_narrow(part)
        self.assertIn("micro_batch=1", part)
        self.assertRegex(part, r"micro_batch=1 .*fits")
        answer = self.check(*words)
        effects = answer["effects"]
        saved = [effect["saved_bytes"] for effect in effects]
        self.assertEqual(saved, sorted(saved, reverse=True))
        one = next(e for e in effects if e["change"] == "checkpoint.every=1")
        # What it says is what an estimate of that config says.
        there = self.client_json("estimate", *JOB, "--precision", "bf16", "--micro-batch", 64,
                                 "--checkpoint.every", 1)
        self.assertEqual(answer["peak_used_bytes"] - there["peak_used_bytes"], one["saved_bytes"])
        self.assertEqual(one["fits"], there["fits"])
        self.assertNotIn("effects", there)

    # sweep

    def test_a_grid_and_its_front(self):
        words = ("sweep", *SMALL, "--grid", "micro-batch=1..4,8", "--grid", "checkpoint.every=0,1")
        answer = self.check(*words)
        self.assertTrue(answer["complete"])
        self.assertEqual((answer["total"], answer["estimated"], answer["refused"]), (10, 10, 0))
        front = answer["front"]
        speeds = [s["estimate"]["tokens_per_second"] for s in front]
        peaks = [s["estimate"]["peak_used_bytes"] for s in front]
        self.assertEqual(speeds, sorted(speeds, reverse=True))
        self.assertEqual(peaks, sorted(peaks, reverse=True))
        # Each is what an estimate says.
        best = front[0]["train_config"]
        again = self.client_json("estimate", *SMALL, "--micro-batch", best["micro_batch"],
                                 "--checkpoint.every", best["checkpoint"]["every"])
        self.assertEqual(again["peak_used_bytes"], peaks[0])
        self.assertIn("Pareto front", self.client(*words).stdout)
        rows = list(csv.DictReader(io.StringIO(self.client(*words, "--output", "csv").stdout)))
        self.assertEqual([int(row["peak_used_bytes"]) for row in rows], peaks)
        every = self.client(*words, "--output", "csv", "--all").stdout
        rows = list(csv.DictReader(io.StringIO(every)))
        self.assertEqual(sorted({(int(r["micro_batch"]), int(r["checkpoint.every"]))
                                 for r in rows}),
                         sorted((m, k) for m in (1, 2, 3, 4, 8) for k in (0, 1)))

    def test_combinations_that_are_not_legal_are_counted(self):
        answer = self.check("sweep", *SMALL, "--grid", "checkpoint.every=0..2")
        self.assertEqual((answer["total"], answer["estimated"], answer["refused"]), (3, 2, 1))
        self.assertIn("checkpoint", answer["refusal"])
        self.assertIn("no config of the grid",
                      self.sentence("sweep", *SMALL, "--grid", "checkpoint.every=2"))

    def test_the_space_within_pins(self):
        answer = self.check("sweep", "--model", "gpt2", "--seq-len", 256, "--device",
                            "model:mi210", "--framework", "hf-sdpa+deepspeed", "--zero.stage", 2,
                            "--micro-batch", "1,8")
        self.assertGreater(answer["estimated"], 3)
        for swept in answer["front"]:
            self.assertEqual(swept["train_config"]["zero"]["stage"], 2)
            self.assertIn(swept["train_config"]["micro_batch"], (1, 8))

    def test_a_sweep_of_which_nothing_fits(self):
        done = self.client("sweep", *SMALL, "--memory", "300MiB", "--ceiling", "200MiB", "--grid",
                           "micro-batch=64,128", code=support.NOTHING_FITS)
        self.assertIn("nothing fits", done.stdout)

    def test_configs_over_256_tib_do_not_fit(self):
        # Logits of 49 TiB a copy, and activations beside them.
        words = (*JOB[:2], "--seq-len", 4096, *JOB[4:])
        done = self.client("sweep", *words, "--grid", "micro-batch=524288,1048576",
                           code=support.NOTHING_FITS)
        self.assertIn("2 configs: 2 estimated, 0 fit", done.stdout)
        self.assertIn("nothing fits: each config that was estimated takes over 256 TiB",
                      done.stdout)
        answer = self.client_json("sweep", *words, "--precision", "bf16", "--grid",
                                  "micro-batch=1,1048576", code=support.NOTHING_FITS)
        self.assertIn("least", answer)  # of the one that has figures
        self.assertEqual((answer["estimated"], answer["refused"]), (2, 0))
        self.assertIn("over 256 TiB", self.sentence("estimate", *words, "--micro-batch", 1048576))

    def test_bad_grids(self):
        for grid, words in (("micro-batch", "FIELD=VALUES"), ("micro-batch=4..1", "no range"),
                            ("checkpoint.evry=1", "checkpoint.every"),
                            ("micro-batch=1:4", "not a range"), ("zero.stage=x", "zero.stage")):
            self.assertIn(words, self.sentence("sweep", *SMALL, "--grid", grid), grid)
        self.assertIn("--output csv", self.sentence("sweep", *SMALL, "--all"))

    def test_an_interrupted_sweep_shows_what_there_is(self):
        child = self.spawn_client("sweep", "--model", "llama2-7b", "--device", "model:mi210",
                                  "--seq-len", 1024, "--framework", "fused", "--output", "json",
                                  "--grid", "micro-batch=1..1000", "--grid",
                                  "loss-chunk-tokens=0..900")
        time.sleep(4)
        self.assertIsNone(child.poll(), "a sweep of 901,000 configs was over in 4 s")
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=60)
        self.assertEqual(child.returncode, support.INTERRUPTED)
        answer = json.loads(out)
        self.assertFalse(answer["complete"])
        self.assertGreater(answer["estimated"] + answer["refused"], 0)
        self.assertLess(answer["estimated"], answer["total"])

    # verify

    def test_recordings_are_verified(self):
        recording = json.loads((DATA / "hf" / "gpt2.json").read_text())
        answer = self.check("verify", DATA / "hf" / "gpt2.json", "--run", "gpt2")
        self.assertEqual(answer["equal_runs"], answer["runs"] - answer["refused_runs"])
        one = self.folder / "one.json"
        one.write_text(json.dumps(recording["runs"][0]))
        text = self.client("verify", one).stdout
        self.assertIn("equal within", text)
        self.assert_narrow(text, 100)
        phase = next(p for p in recording["runs"][0]["phases"] if p["name"] == "backward")
        event = next(i for i, e in enumerate(phase["events"]) if e[0] > 4096)
        phase["events"][event][0] *= 5
        one.write_text(json.dumps(recording["runs"][0]))
        different = self.client("verify", one, code=support.FAILED).stdout
        self.assertRegex(different, rf"first difference: backward of step \d+, event {event}\n")
        self.assertIn("recorded   allocates", different)

    def test_what_is_no_recording(self):
        (self.folder / "a.json").write_text("{}")
        (self.folder / "b.json").write_text("{")
        (self.folder / "c.json").write_text('{"runs": [{"name": "x"}]}')
        for path, words in (("a.json", "not a recording"), ("b.json", "not JSON"),
                            ("c.json", "has no"), ("d.json", "no such file"), (".", "no file")):
            self.assertIn(words, self.sentence("verify", path), path)

    # ladder

    def test_the_ladder_climbs(self):
        answer = self.check("ladder", "--seq-len", 512)
        self.assertEqual([m["model"] for m in answer["models"]],
                         ["llama2-7b", "llama2-13b", "falcon-7b"])
        for model in answer["models"]:
            self.assertEqual([r["rung"] for r in model["rungs"]],
                             ["none", "checkpointing", "mixed precision", "everything"])
            self.assertTrue(model["rungs"][-1]["estimate"]["fits"], model["model"])
            for before, rung in zip(model["rungs"], model["rungs"][1:]):
                self.assertEqual(rung["saved_bytes"], before["estimate"]["peak_used_bytes"] -
                                 rung["estimate"]["peak_used_bytes"])
            for rung in model["rungs"]:
                self.assertEqual(rung["missing_bytes"] == 0, rung["estimate"]["fits"])
        text = self.client("ladder", "--seq-len", 512).stdout
        self.assert_narrow(text)
        self.assertRegex(text, r"no: [\d.]+ GiB over")


class Calibrated(support.Case):
    def test_a_calibration_is_what_the_private_daemon_models(self):
        done = self.client("calibrate", "--device", "host", "--budget", "1s", timeout=600)
        path = self.folder / "state" / "hbmtune" / "profiles" / "host.toml"
        self.assertIn(str(path), done.stdout)
        text = path.read_text()
        self.assertIn('kind = "measured"', text)
        self.assertRegex(text, r"measured \d{4}-\d\d-\d\d on ")
        title = re.search(r'^title = "(.*)"$', text, re.M).group(1)
        self.socket = self.folder / "run" / "hbmtune" / "private.sock"
        devices = self.client_json("devices", "--local", HBMTUNE_SOCKET="")
        host = next(d for d in devices if d["device"] == "host")
        self.assertEqual(host["product"], title)
        self.assertGreater(host["measured_figures"], 10)
        estimate = self.client_json("estimate", "--local", "--device", "model:host", "--model",
                                    self.model(), "--seq-len", 64, HBMTUNE_SOCKET="")
        self.assertGreater(estimate["step_seconds"], 0)

    def test_a_folder_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        self.assertIn("cannot make the folder", self.sentence(
            "calibrate", "--out", "file/sub/host.toml", code=support.FAILED))


if __name__ == "__main__":
    support.main()
