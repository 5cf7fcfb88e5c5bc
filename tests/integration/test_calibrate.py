"""Calibrations by the daemon: a probe measures, the daemon keeps the profile and models with it."""

import threading

import grpc

import api
import support
from api import devices

TIMEOUT = 300


class Calibrate(support.Case):
    def setUp(self):
        super().setUp()
        self.profile = self.folder / "data/profiles/host.toml"

    def start(self):
        self.start_daemon()
        self.api = api.Client(self.socket)
        self.addCleanup(self.api.channel.close)

    def calibrate(self, **fields):
        request = devices.CalibrateRequest(**({"device": "host", "budget_seconds": 1} | fields))
        return self.api.devices.Calibrate(request, timeout=TIMEOUT)

    def refusal(self, **fields):
        with self.assertRaises(grpc.RpcError) as caught:
            next(self.calibrate(**fields))
        return caught.exception.code().name, caught.exception.details()

    def host(self):
        return self.api.devices.GetDevice(devices.GetDeviceRequest(name="host"), timeout=TIMEOUT)

    def await_no_probe(self):
        support.wait_until(lambda: not self.processes("hbmtune-probe"), 30, "the probe is gone")

    def test_the_profile_is_kept_and_modelled_with(self):
        self.start_probe_unit()
        self.start()
        before = self.host().measured_figures
        events = []
        for event in self.calibrate():
            events.append(event)
            if len(events) == 1:
                self.assertEqual(self.host().state, devices.DEVICE_STATE_PROBING)
        done = [event.done_ratio for event in events]
        self.assertGreater(len(done), 5)
        self.assertEqual(done, sorted(done))
        self.assertTrue(all(event.what for event in events[:-1]))
        self.assertEqual(done[-1], 1)
        self.assertEqual(events[-1].profile_toml, self.profile.read_text())
        self.assertGreater(self.host().measured_figures, before + 10)
        estimate = self.client_json("estimate", "--device", "model:host", "--model", self.model(),
                                    "--seq-len", 64)
        self.assertGreater(estimate["step_seconds"], 0)
        self.assertEqual([line[:2] for line in self.journal_lines()],
                         [("started", "calibration"), ("finished", "calibration")])

    def test_what_cannot_be_asked(self):
        self.start()
        self.assertEqual(self.refusal(device="model:mi210"), (
            "INVALID_ARGUMENT", "model:mi210 cannot be calibrated, only host so far"))
        self.assertEqual(self.refusal(device="mi210")[0], "NOT_FOUND")
        self.assertEqual(self.refusal(budget_seconds=-1)[0], "INVALID_ARGUMENT")
        self.assertEqual(self.refusal(threads=2000)[0], "INVALID_ARGUMENT")
        self.api.devices.AcquireLease(
            devices.AcquireLeaseRequest(job_id="7", devices=["host"]), timeout=TIMEOUT)
        self.assertEqual(self.refusal(),
                         ("FAILED_PRECONDITION", "device host is leased by job 7"))
        self.assertEqual(self.journal_lines(), [])

    def test_a_job_that_needs_the_device_ends_it(self):
        self.start()
        call = self.calibrate(budget_seconds=600)
        next(call)
        self.assertEqual(self.refusal(), ("FAILED_PRECONDITION", "host is calibrated already"))
        lease = self.api.devices.AcquireLease(
            devices.AcquireLeaseRequest(job_id="7", devices=["host"]), timeout=TIMEOUT)
        self.assertEqual(lease.state, devices.LEASE_STATE_DRAINING)
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.ABORTED)
        self.assertIn("the device is needed", caught.exception.details())
        self.api.devices.WaitLease(devices.WaitLeaseRequest(job_id="7"), timeout=TIMEOUT)
        self.await_no_probe()
        self.assertFalse(self.profile.exists())

    def test_who_gives_up_ends_it_and_a_study_goes_on(self):
        self.start()
        call = self.calibrate(budget_seconds=600)
        next(call)
        self.client(*self.host_study("--max-trials", 1, "--detach"))
        support.wait_until(lambda: "device host is being probed" in self.client_json(
            "show", 1)["study"]["message"], 60, "the study waits")
        call.cancel()
        self.assertEqual(self.wait_for_study()["state"], "succeeded")
        self.assertFalse(self.profile.exists())

    def test_the_daemon_leaves_in_the_middle(self):
        self.start()
        call = self.calibrate(budget_seconds=600)
        next(call)
        ends = []
        reader = threading.Thread(target=lambda: ends.append(self.code_of(call)))
        reader.start()
        self.assertEqual(self.stop_daemon(), 0)
        reader.join(timeout=60)
        self.assertIn(ends[0], ("ABORTED", "CANCELLED", "UNAVAILABLE"))
        self.await_no_probe()

    def code_of(self, call):
        try:
            list(call)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"


if __name__ == "__main__":
    support.main()
