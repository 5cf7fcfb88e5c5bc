#!/usr/bin/env python3
"""Kills the daemon again and again in the middle of studies on `host` and `model:` devices, and
looks after each kill, and at the end, whether anything was lost.

    crash.py [--kills 200] [--seed N] [--unit]      HBMTUNE_BIN names the folder of the programs

With --unit probes run behind a socket, as where hbmtune is installed, else as children.

Kills come in kinds, in an order that the seed decides. Those of a failpoint die at that very place
(daemon/base/failpoint.h); `probe` is SIGKILL from outside while a probe is alive; `random` is
SIGKILL at any moment, the start included. What has to hold:

- a trial that was FINISHED in the database stays so, unchanged;
- a trial that its probe finished (by the probe's own journal; CANCELLED is no finish) is FINISHED
  in the end, with that outcome, and no probe finished it twice;
- a study whose cancel was on disk ends as CANCELLED, one that nobody cancelled as SUCCEEDED;
- a lease that was granted is there after the restart, one that was released is not;
- `PRAGMA integrity_check` says ok after every kill, and studies count what their trials show;
- in the end no process and no result file is left.
"""

import argparse
import collections
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
import unittest

import support

FAILPOINTS = {
    "row": ("trial-stored",),
    "spawn": ("probe-started",),
    "commit": ("probe-ended", "trial-written"),
    "after": ("trial-committed",),
    "lease": ("lease-written", "lease-committed"),
    "cancel": ("cancel-stored",),
}
# How often each kind comes, of 22.
SHARES = {"row": 4, "probe": 4, "commit": 4, "spawn": 2, "after": 2, "lease": 2, "cancel": 2,
          "random": 2}
PATIENCE = 240  # seconds for anything that a loaded machine may delay


def order_of(kills, rng):
    kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
    order = []
    while len(order) < kills:
        rng.shuffle(kinds)
        order += kinds
    return order[:kills]


class Crash(support.Case):
    KILLS = 12
    SEED = 0
    UNIT = False

    def setUp(self):
        super().setUp()
        self.unit = self.start_probe_unit() if self.UNIT else None
        import api
        self.api = api
        self.rng = random.Random(self.SEED)
        self.finished = {}  # (study, number) -> the row, as it was when first seen finished
        self.cancelled = set()  # studies that have to end so
        self.leases = {}    # device -> job that holds it
        self.jobs = 0
        self.counts = collections.Counter()
        self.hit = 0        # kills while a probe was alive

    # --- the daemon ---------------------------------------------------------------------------

    def start(self, failpoint=None):
        extra = {"HBMTUNE_FAILPOINT": failpoint} if failpoint else {}
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(self.daemon_command("--http", "off"), stderr=log,
                                           stdin=subprocess.DEVNULL,
                                           env=self.environment(**extra))
        self.children = [child for child in (self.unit, self.daemon) if child]

    def died(self):
        return self.daemon.poll() is not None

    def client_api(self):
        client = self.api.Client(self.socket)
        self.addCleanup(client.channel.close)
        return client

    # --- something to do ----------------------------------------------------------------------

    def study(self, device):
        request = self.api.tuning.CreateStudyRequest(device=device, budget_seconds=6)
        request.workload.seq_len = 32
        if device == "host":
            request.model.config_json = self.model(
                hidden_size=64, intermediate_size=96, num_hidden_layers=2, vocab_size=256,
                num_attention_heads=2, num_key_value_heads=2).read_text()
            request.model.name = "tiny"
            request.ceiling.capacity_bytes = 24 << 20
            request.max_trials = 12
            request.budget_seconds = 600
            request.designer = "random"
        else:
            request.model.preset = "llama2-7b"
            request.workload.seq_len = 512
            request.max_trials = 40
        request.seed = self.rng.randrange(1 << 30)
        request.client_request_id = f"crash-{request.seed}"
        return request

    def keep_busy(self, client):
        """Sees to it that both kinds of device have a study that goes on. May lose its daemon."""
        studies = client.tuning.ListStudies(
            self.api.tuning.ListStudiesRequest(page_size=50), timeout=1,
            wait_for_ready=True).studies
        going = {study.device for study in studies
                 if study.state in (self.api.tuning.STUDY_STATE_QUEUED,
                                    self.api.tuning.STUDY_STATE_RUNNING)}
        for device in ("host", "model:mi210"):
            if device not in going:
                client.tuning.CreateStudy(self.study(device), timeout=PATIENCE)

    def lease_something(self, client):
        """Acquires or releases a lease. What was answered must hold; what was not may or may not,
        and is asked for again after the restart."""
        device = self.rng.choice(("model:mi300x", "model:mi250x"))
        if job := self.leases.get(device):
            self.leases[device] = None  # until it is answered
            client.devices.ReleaseLease(self.api.devices.ReleaseLeaseRequest(job_id=job),
                                        timeout=PATIENCE)
            del self.leases[device]
            return
        job = f"job-{self.jobs}"
        self.jobs += 1
        self.leases[device] = None
        lease = client.devices.AcquireLease(
            self.api.devices.AcquireLeaseRequest(job_id=job, devices=[device]),
            timeout=PATIENCE)
        self.assertTrue(lease.durable)
        self.leases[device] = job

    def cancel_something(self, client):
        """A study of probes; the daemon may die of it."""
        studies = client.tuning.ListStudies(
            self.api.tuning.ListStudiesRequest(page_size=50), timeout=PATIENCE).studies
        running = [study.name for study in studies if study.device == "host"
                   and study.state == self.api.tuning.STUDY_STATE_RUNNING]
        for name in running:
            study = client.tuning.CancelStudy(self.api.tuning.CancelStudyRequest(name=name),
                                              timeout=PATIENCE)
            if study.state == self.api.tuning.STUDY_STATE_CANCELLED:
                self.cancelled.add(name)

    def settle_leases(self, client):
        for device in [device for device, job in self.leases.items() if job is None]:
            held = client.devices.GetDevice(self.api.devices.GetDeviceRequest(name=device),
                                            timeout=PATIENCE).leased_by
            if held:
                client.devices.ReleaseLease(self.api.devices.ReleaseLeaseRequest(job_id=held),
                                            timeout=PATIENCE)
            del self.leases[device]

    # --- the kills ----------------------------------------------------------------------------

    def kill_once(self, kind):
        if kind in FAILPOINTS:
            place = self.rng.choice(FAILPOINTS[kind])
            self.start(f"{place}:{self.rng.randint(1, 3)}")
            self.work_until(self.died, {"lease": self.lease_something,
                                        "cancel": self.cancel_something}.get(kind))
            self.assertEqual(self.daemon.wait(), -9, self.log.read_text()[-2000:])
        elif kind == "probe":
            self.start()
            self.work_until(self.probe_alive)
            time.sleep(self.rng.uniform(0, 0.3))
            alive = self.probe_alive()
            self.kill_daemon()
            self.hit += alive
            if not alive:
                kind = "random"  # it ended just before
        else:
            self.start()
            time.sleep(self.rng.uniform(0, 1.5))
            self.kill_daemon()
        self.counts[kind] += 1

    def probe_alive(self):
        """The last probe that began has not ended."""
        lines = self.journal_lines()
        if not lines or lines[-1][0] != "started":
            return False
        return os.path.exists(f"/proc/{lines[-1][2]}/exe")

    def work_until(self, over, do=None):
        deadline = time.monotonic() + PATIENCE
        with self.api.Client(self.socket) as client:
            while not over():
                self.assertLess(time.monotonic(), deadline, self.log.read_text()[-3000:])
                try:
                    self.keep_busy(client)
                    if do:
                        do(client)
                except self.api.grpc.RpcError as error:
                    # Its daemon has died, or is slow to start.
                    self.assertIn(error.code(), (self.api.grpc.StatusCode.UNAVAILABLE,
                                                 self.api.grpc.StatusCode.DEADLINE_EXCEEDED))
                time.sleep(0.02)

    # --- what must hold -----------------------------------------------------------------------

    def database(self):
        """A copy of the files as the dead daemon left them, so that looking changes nothing."""
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for suffix in ("", "-wal"):
            file = self.folder / "data" / f"hbmtune.db{suffix}"
            if file.exists():
                shutil.copy(file, copy)
        connection = sqlite3.connect(copy / "hbmtune.db")
        connection.row_factory = sqlite3.Row
        return connection

    def look(self):
        """After a kill: the file is whole, and nothing that was finished has changed."""
        connection = self.database()
        try:
            verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
            self.assertEqual(verdict, "ok")
            self.assertEqual(connection.execute("PRAGMA foreign_key_check").fetchall(), [])
            rows = {(row["study_id"], row["number"]): tuple(row) for row in connection.execute(
                "SELECT * FROM trials WHERE state='FINISHED'")}
            for key, row in self.finished.items():
                self.assertEqual(rows.get(key), row, f"trial {key} changed or was lost")
            self.finished = rows
            counted = connection.execute(
                "SELECT id, progress_finished_trials, (SELECT COUNT(*) FROM trials WHERE"
                " study_id=id AND state='FINISHED') AS there FROM studies").fetchall()
            self.cancelled |= {f"studies/{row['id']}" for row in connection.execute(
                "SELECT id FROM studies WHERE cancel_reason NOT NULL"
                " AND state IN ('QUEUED', 'RUNNING', 'CANCELLED')")}
            for study in counted:
                self.assertEqual(study["progress_finished_trials"], study["there"], study["id"])
            held = {row["device"]: row["job_id"]
                    for row in connection.execute("SELECT device, job_id FROM lease_devices")}
            for device, job in self.leases.items():
                if job is not None:
                    self.assertEqual(held.get(device), job, "a lease that was granted is gone")
            for device in held:
                self.assertIn(device, self.leases, "a lease that was released is back")
        finally:
            connection.close()

    def finish(self):
        """Lets every study end, then stops the daemon."""
        self.start()
        with self.api.Client(self.socket) as client:
            client.devices.ListDevices(self.api.devices.ListDevicesRequest(), timeout=PATIENCE,
                                       wait_for_ready=True)
            self.settle_leases(client)
            for device, job in self.leases.items():
                lease = client.devices.AcquireLease(self.api.devices.AcquireLeaseRequest(
                    job_id=job, devices=[device]), timeout=PATIENCE)
                self.assertEqual(lease.state, self.api.devices.LEASE_STATE_GRANTED)
            for study in client.tuning.ListStudies(self.api.tuning.ListStudiesRequest(
                    page_size=1000), timeout=PATIENCE).studies:
                last = None
                for event in client.tuning.WatchStudy(self.api.tuning.WatchStudyRequest(
                        name=study.name), timeout=900):
                    if event.HasField("study"):
                        last = event.study
                end = (self.api.tuning.STUDY_STATE_CANCELLED if study.name in self.cancelled
                       else self.api.tuning.STUDY_STATE_SUCCEEDED)
                self.assertEqual(last.state, end, f"{study.name}: {last.message}")
        self.assertEqual(self.stop_daemon(), 0)

    def judge(self):
        """Of the journal, which the probes wrote themselves."""
        finishes = collections.Counter(self.finished_trials())
        twice = [trial for trial, count in finishes.items() if count > 1]
        self.assertEqual(twice, [], "finished more than once")
        connection = self.database()
        stored = {f"studies/{row['study_id']}/trials/{row['number']}": row for row in
                  connection.execute("SELECT * FROM trials")}
        connection.close()
        for event, trial, rest in self.journal_lines():
            if event != "finished" or rest == "CANCELLED":
                continue
            self.assertEqual((stored[trial]["state"], stored[trial]["measurement_outcome"]),
                             ("FINISHED", rest), trial)
        for trial, row in stored.items():
            cancelled = trial.split("/trials/")[0] in self.cancelled
            self.assertIn(row["state"], ("FINISHED", "ABANDONED") if cancelled else ("FINISHED",),
                          trial)
        self.assertEqual(list((self.folder / "data").glob("*.result*")), [])
        if self.unit:
            self.unit.terminate()
            self.unit.wait()
        self.assert_no_process_left(20)
        return len(finishes), len(stored)

    def test_kills(self):
        began = time.monotonic()
        print(f"seed {self.SEED}, {self.KILLS} kills", flush=True)
        for number, kind in enumerate(order_of(self.KILLS, self.rng)):
            try:
                self.settle_unanswered()
                self.kill_once(kind)
                self.look()
            except Exception:
                print(f"at kill {number} ({kind}); the log ends:\n{self.log.read_text()[-2000:]}")
                raise
        self.settle_unanswered()
        self.finish()
        self.look()
        probed, stored = self.judge()
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.counts.items()))
        print(f"{self.KILLS} kills in {time.monotonic() - began:.0f} s ({kinds}; a probe was alive"
              f" in {self.hit} of `probe`); {len(self.cancelled)} studies cancelled;"
              f" {probed} trials finished by probes, {stored} in all;"
              " none lost, none run twice")

    def settle_unanswered(self):
        """Leases whose call was cut off: a short life of the daemon to find out and end them."""
        if not any(job is None for job in self.leases.values()):
            return
        self.start()
        with self.api.Client(self.socket) as client:
            client.devices.ListDevices(self.api.devices.ListDevicesRequest(), timeout=PATIENCE,
                                       wait_for_ready=True)
            self.settle_leases(client)
        self.kill_daemon()
        self.look()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--unit", action="store_true")
    options = parser.parse_args()
    Crash.KILLS, Crash.SEED, Crash.UNIT = options.kills, options.seed, options.unit
    unittest.main(argv=[sys.argv[0]], verbosity=2)


if __name__ == "__main__":
    main()
