"""`lease`, `release`, `quiesce`, `resume`, and what is said of a dirty GPU."""

import json
import pathlib
import sqlite3
import subprocess

import api
import support
from api import tuning

FAKE_NODE = support.BIN.parent / "tests" / "fake_node"
TIMEOUT = 60


class Leases(support.Case):
    def setUp(self):
        super().setUp()
        self.sysfs = self.folder / "sys"
        subprocess.run([FAKE_NODE, self.sysfs, "mi300x", "2"], check=True)

    def start(self):
        self.start_daemon("--sysfs-root", str(self.sysfs))
        shown = self.client_json("devices")
        self.gpus = [device["device"] for device in shown if device["kind"] == "gpu"]
        self.assertEqual(len(self.gpus), 2)

    def device(self, name):
        return next(d for d in self.client_json("devices") if d["device"] == name)

    def test_a_job_takes_devices_and_gives_them_back(self):
        self.start()
        lease = self.client_json("lease", "--job", "4711", "--time", "2h", "hip:0", self.gpus[1])
        self.assertEqual(lease, {"job_id": "4711", "devices": self.gpus, "state": "granted",
                                 "durable": True})
        self.assertEqual(self.device(self.gpus[0])["leased_by"], "4711")
        self.assertIn("leased, job 4711", self.client("devices").stdout)
        taken = self.sentence("lease", "--job", "4712", "hip:0", code=support.FAILED)
        self.assertIn("4711", taken)
        self.assertEqual(self.client("release", "--job", "4711").stdout, "")
        self.client("release", "--job", "4711")
        self.assertEqual(self.device(self.gpus[0])["leased_by"], "")

    def test_the_job_is_the_schedulers_unless_a_flag_says_another(self):
        self.start()
        self.assertIn("--job is missing", self.sentence("lease", "host"))
        schedulers = {"PBS_JOBID": "3.pbs", "FLUX_JOB_ID": "f2", "SLURM_JOB_ID": "1"}
        for count, job in ((3, "1"), (2, "f2"), (1, "3.pbs")):
            variables = dict(list(schedulers.items())[:count])
            lease = self.client_json("lease", "hip:0", **variables)
            self.assertEqual(lease["job_id"], job)
            self.client("release", **variables)
        self.assertEqual(self.client_json("lease", "hip:0", "--job", "9", **schedulers)["job_id"],
                         "9")
        words = ("tune", "--model", "gpt2", "--seq-len", 256, "--device",
                 "model:mi210", "--max-trials", 1)
        self.client(*words, **schedulers)
        self.client(*words, "--job", "9", **schedulers)
        self.client(*words)
        with api.Client(self.socket) as client:
            studies = [client.tuning.GetStudy(tuning.GetStudyRequest(name=f"studies/{number}"),
                                              timeout=TIMEOUT) for number in (1, 2, 3)]
        self.assertEqual([study.job_id for study in studies], ["1", "9", ""])

    def test_a_lease_and_a_quiesce_wait_for_the_probe_that_runs(self):
        self.start()
        self.client(*self.host_study("--detach"))
        for take, give in ((("lease", "--job", "7", "host"), ("release", "--job", "7")),
                           (("quiesce", "host"), ("resume", "host"))):
            with self.subTest(take=take):
                support.wait_until(lambda: self.device("host")["state"] == "probing", 120,
                                   "the study probes")
                self.client(*take)
                self.assertIn(self.device("host")["state"], ("leased", "quiesced"))
                self.assertEqual(self.processes("hbmtune-probe"), [])
                self.client(*give)
        self.client("cancel", 1)

    def test_a_dirty_gpu_says_why_and_an_admin_takes_it_back(self):
        self.start()
        self.stop_daemon()
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        with sqlite3.connect(self.folder / "data/hbmtune.db") as store:
            store.execute("INSERT INTO gpu_baselines VALUES (?, ?, 0, ?)",
                          (self.gpus[0], boot, "12.00 GiB were not given back"))
        store.close()
        self.start()
        dirty = self.device(self.gpus[0])
        self.assertEqual((dirty["state"], dirty["dirty"]),
                         ("dirty", "12.00 GiB were not given back"))
        for text in (self.client("devices").stdout, self.client("top", "--count", 1).stdout):
            self.assertIn(f"{self.gpus[0]} is dirty: 12.00 GiB were not given back", text)
            self.assertIn("hbmtune resume", text)
        look = json.loads(self.client("top", "--count", 1, "--output", "json").stdout)
        self.assertIn("12.00 GiB were not given back",
                      [device["dirty"] for device in look["devices"]])
        self.assertEqual(self.client("resume", "hip:0").stdout, f"{self.gpus[0]}: idle\n")
        self.assertNotIn("is dirty", self.client("devices").stdout)

    def test_names_for_a_shell(self):
        self.start()
        names = self.client("devices", "--names").stdout.split()
        for name in ("host", "model:mi210", "hip:0", *self.gpus):
            self.assertIn(name, names)
        self.client("tune", "--model", "gpt2", "--seq-len", 256, "--device", "model:mi210",
                    "--max-trials", 1)
        self.assertEqual(self.client("studies", "--names").stdout, "1\n")

    def test_what_does_not_exist(self):
        self.start()
        self.assertIn("hip:7", self.sentence("lease", "--job", "1", "hip:7"))
        self.assertIn("hip:7", self.sentence("quiesce", "hip:7"))
        self.assertIn("DEVICE is missing", self.sentence("resume"))


if __name__ == "__main__":
    support.main()
