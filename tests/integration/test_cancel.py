"""Ctrl-C, cancel, detach, watch."""

import json
import signal
import time

import support
from support import DONE, FAILED, INTERRUPTED


class Cancel(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def start_tune(self, *more):
        """A running study of real probes of which one trial at least has finished."""
        client = self.spawn_client(*self.host_study(*more))
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        return client

    def study(self):
        return self.client_json("studies")[0]

    def test_ctrl_c_cancels_the_study_and_keeps_its_trials(self):
        client = self.start_tune()
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=30)
        self.assertEqual(client.returncode, INTERRUPTED, out + err)
        self.assertIn("cancelled", out)
        study = self.study()
        self.assertEqual(study["state"], "cancelled")
        kept = self.client_json("show", 1)["trials"]
        finished = [trial for trial in kept if trial["state"] == "finished"]
        self.assertEqual(len(finished), study["progress"]["finished_trials"])
        self.assertGreaterEqual(len(finished), 1)
        self.assertEqual(self.client_json("recommend", 1)["study"], "studies/1")

    def test_ctrl_c_with_json_still_prints_json(self):
        client = self.start_tune("--output", "json")
        client.send_signal(signal.SIGINT)
        out, _ = client.communicate(timeout=30)
        self.assertEqual(client.returncode, INTERRUPTED)
        self.assertEqual(json.loads(out)["state"], "cancelled")

    def test_a_second_ctrl_c_leaves_at_once(self):
        client = self.start_tune()
        self.daemon.send_signal(signal.SIGSTOP)  # it will not answer the first one
        try:
            client.send_signal(signal.SIGINT)
            time.sleep(0.5)
            self.assertIsNone(client.poll())
            client.send_signal(signal.SIGINT)
            self.assertEqual(client.wait(timeout=5), INTERRUPTED)
        finally:
            self.daemon.send_signal(signal.SIGCONT)

    def test_two_ctrl_c_at_once_cancel_although_somebody_else_keeps_the_daemon(self):
        client = self.start_tune()
        watching = self.spawn_client("watch", 1)
        client.send_signal(signal.SIGINT)
        time.sleep(0.02)
        client.send_signal(signal.SIGINT)
        self.assertEqual(client.wait(timeout=10), INTERRUPTED)
        watching.communicate(timeout=30)
        self.assertEqual(self.study()["state"], "cancelled")

    def test_before_a_trial_has_ended_nothing_is_said_of_what_fits(self):
        first = self.start_tune()
        client = self.spawn_client(*self.host_study("--output", "json"))
        support.wait_until(lambda: self.study()["study"] == "studies/2", 60, "it is queued")
        self.assertEqual(self.study()["message"], "study 1 runs on host")
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=30)
        self.assertEqual(client.returncode, INTERRUPTED)
        self.assertIn("study 2 was cancelled before a trial ended", err)
        answer = json.loads(out)
        self.assertEqual(answer["state"], "cancelled")
        self.assertNotIn("shortfall", answer)
        self.assertNotIn("recommendation", self.client_json("show", 2))
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)

    def test_cancel_ends_a_study_that_somebody_else_follows(self):
        client = self.start_tune()
        self.assertIn("study 1: cancelled", self.client("cancel", 1).stdout)
        client.communicate(timeout=30)
        self.assertEqual(client.returncode, FAILED)
        # Once more is no error: it has ended.
        self.assertEqual(self.client_json("cancel", "studies/1")["state"], "cancelled")

    def test_no_probe_is_left_after_a_cancel(self):
        client = self.start_tune()
        self.client("cancel", 1)
        client.communicate(timeout=30)
        support.wait_until(lambda: not self.processes("hbmtune-probe"), 5,
                           "the probe is gone")

    def test_detach_leaves_it_running_and_watch_follows_it(self):
        self.client(*self.host_study("--max-trials", 3, "--detach"))
        watching = self.spawn_client("watch", 1)
        out, err = watching.communicate(timeout=290)
        self.assertEqual(watching.returncode, DONE, out + err)
        self.assertIn("recommended", out)

    def test_ctrl_c_of_a_watcher_leaves_the_study_alone(self):
        tune = self.start_tune()
        watching = self.spawn_client("watch", 1)
        time.sleep(0.5)
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=10)
        self.assertEqual(watching.returncode, INTERRUPTED)
        self.assertIn("the study goes on", err)
        self.assertEqual(self.study()["state"], "running")
        tune.send_signal(signal.SIGINT)
        tune.communicate(timeout=30)

    def test_one_study_at_a_time_on_a_device_the_next_one_waits(self):
        first = self.start_tune()
        self.client(*self.host_study("--max-trials", 1, "--detach"))
        self.assertEqual(self.study()["state"], "queued")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=30)
        support.wait_until(lambda: self.study()["state"] == "succeeded", 60, "the second runs")


if __name__ == "__main__":
    support.main()
