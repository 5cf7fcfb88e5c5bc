"""Ctrl-C, cancel, detach, watch."""

import json
import os
import pathlib
import signal
import sqlite3
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
        out, err = client.communicate(timeout=support.PATIENCE)
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
        out, _ = client.communicate(timeout=support.PATIENCE)
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
            self.assertEqual(client.wait(timeout=support.PATIENCE), INTERRUPTED)
        finally:
            self.daemon.send_signal(signal.SIGCONT)

    def test_two_ctrl_c_at_once_cancel_although_somebody_else_keeps_the_daemon(self):
        client = self.start_tune()
        watching = self.spawn_client("watch", 1)
        client.send_signal(signal.SIGINT)
        time.sleep(0.02)
        client.send_signal(signal.SIGINT)
        self.assertEqual(client.wait(timeout=support.PATIENCE), INTERRUPTED)
        watching.communicate(timeout=support.PATIENCE)
        self.assertEqual(self.study()["state"], "cancelled")

    def test_before_a_trial_has_ended_nothing_is_said_of_what_fits(self):
        first = self.start_tune()
        client = self.spawn_client(*self.host_study("--output", "json"))
        support.wait_until(lambda: self.study()["study"] == "studies/2", 60, "it is queued")
        self.assertEqual(self.study()["message"], "study 1 runs on host")
        client.send_signal(signal.SIGINT)
        out, err = client.communicate(timeout=support.PATIENCE)
        self.assertEqual(client.returncode, INTERRUPTED)
        self.assertIn("study 2 was cancelled before a trial ended", err)
        answer = json.loads(out)
        self.assertEqual(answer["state"], "cancelled")
        self.assertNotIn("shortfall", answer)
        self.assertNotIn("recommendation", self.client_json("show", 2))
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=support.PATIENCE)

    def test_cancel_ends_a_study_that_somebody_else_follows(self):
        client = self.start_tune()
        self.assertIn("study 1: cancelled", self.client("cancel", 1).stdout)
        client.communicate(timeout=support.PATIENCE)
        self.assertEqual(client.returncode, FAILED)
        # Once more is no error: it has ended.
        self.assertEqual(self.client_json("cancel", "studies/1")["state"], "cancelled")

    def test_no_probe_is_left_after_a_cancel(self):
        client = self.start_tune()
        self.client("cancel", 1)
        client.communicate(timeout=support.PATIENCE)
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
        _, err = watching.communicate(timeout=support.PATIENCE)
        self.assertEqual(watching.returncode, INTERRUPTED)
        self.assertIn("the study goes on", err)
        self.assertEqual(self.study()["state"], "running")
        tune.send_signal(signal.SIGINT)
        tune.communicate(timeout=support.PATIENCE)

    def test_one_study_at_a_time_on_a_device_the_next_one_waits(self):
        first = self.start_tune()
        self.client(*self.host_study("--max-trials", 1, "--detach"))
        self.assertEqual(self.study()["state"], "queued")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=support.PATIENCE)
        support.wait_until(lambda: self.study()["state"] == "succeeded", 60, "the second runs")


class Killed(support.Case):
    """The daemon is killed after it accepted a cancel and before the study has ended."""

    def restart_and_check(self):
        """The study ends as cancelled: what was finished stays, and nothing runs any more."""
        support.wait_until(lambda: not self.processes("hbmtune-probe"), 20, "the orphan ends")
        finished, begun = self.finished_trials(), len(self.journal_lines())
        self.start_daemon()
        study = self.wait_for_study(seconds=60)
        self.assertEqual((study["state"], study["message"]),
                         ("cancelled", "cancelled by a client"))
        self.assertEqual(study["progress"]["finished_trials"], len(finished))
        states = {trial["trial"]: trial["state"] for trial in self.client_json("show", 1)["trials"]}
        self.assertEqual({trial for trial, state in states.items() if state == "finished"},
                         set(finished))
        self.assertLessEqual(set(states.values()), {"finished", "abandoned"})
        # The next study of the device runs at once, and this one's probe is not among those begun.
        self.client(*self.host_study("--max-trials", 1, "--detach"))
        self.assertEqual(self.wait_for_study(2)["state"], "succeeded")
        more = {trial.split("/trials/")[0] for event, trial, _ in self.journal_lines()[begun:]
                if event == "started"}
        self.assertEqual(more, {"studies/2"})
        self.assertEqual(self.processes("hbmtune-probe"), [])
        self.assertEqual(list((self.folder / "data").glob("*.result*")), [])

    def was_interrupted(self, pid):
        """SIGINT is pending: the daemon has told it to stop."""
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        pending = int(status.partition("ShdPnd:")[2].split()[0], 16)
        return pending >> (signal.SIGINT - 1) & 1

    def test_a_cancel_that_a_probe_was_told_of_holds(self):
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        probe = support.wait_until(self.stopped_probe, 60, "a probe runs, after a finished trial")
        self.spawn_client("cancel", 1)
        support.wait_until(lambda: self.was_interrupted(probe), 30, "the probe is told to stop")
        self.kill_daemon()
        os.kill(probe, signal.SIGCONT)
        self.restart_and_check()

    def test_a_cancel_that_nobody_was_told_of_holds_too(self):
        self.start_daemon(HBMTUNE_FAILPOINT="cancel-stored")
        self.client(*self.host_study("--detach"))
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.spawn_client("cancel", 1)
        self.assertEqual(self.daemon.wait(timeout=support.PATIENCE), -signal.SIGKILL)
        self.restart_and_check()

    def test_a_trial_that_had_finished_is_kept(self):
        # Its probe is gone, its result not yet in the database; the cancel just before is by hand.
        self.start_daemon(HBMTUNE_FAILPOINT="probe-ended:2")
        self.client(*self.host_study("--detach"))
        self.assertEqual(self.daemon.wait(timeout=support.PATIENCE), -signal.SIGKILL)
        connection = sqlite3.connect(self.folder / "data" / "hbmtune.db")
        self.assertEqual(connection.execute("SELECT state FROM trials").fetchall(),
                         [("FINISHED",), ("RUNNING",)])
        with connection:
            connection.execute("UPDATE studies SET cancel_reason='cancelled by a client'")
        connection.close()
        self.assertEqual(len(self.finished_trials()), 2)
        self.restart_and_check()


class KilledBesideUnit(Killed):
    """The same where probes run in a unit: the daemon makes their files, and has to take them."""

    def setUp(self):
        super().setUp()
        self.start_probe_unit()

    def was_interrupted(self, pid):
        """The end of its input is no signal: all that shows is that the cancel is on disk."""
        connection = sqlite3.connect(self.folder / "data" / "hbmtune.db")
        try:
            return connection.execute(
                "SELECT COUNT(*) FROM studies WHERE cancel_reason NOT NULL").fetchone()[0]
        finally:
            connection.close()

    def test_a_cancel_while_the_earlier_probe_is_waited_for(self):
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        probe = support.wait_until(self.stopped_probe, 60, "a probe runs, after a finished trial")
        self.kill_daemon()
        self.start_daemon()
        support.wait_until(
            lambda: "is held by" in self.client_json("show", 1)["study"]["message"], 60,
            "the new daemon waits")
        cancel = self.spawn_client("cancel", 1)
        support.wait_until(lambda: self.was_interrupted(probe), 30, "the cancel is on disk")
        time.sleep(5)  # the study is told to stop, and still waits for that probe
        self.assertIsNone(cancel.poll(), "it has ended while the probe is there")
        os.kill(probe, signal.SIGCONT)
        out, err = cancel.communicate(timeout=support.PATIENCE)
        self.assertEqual(cancel.returncode, DONE, out + err)
        self.assertEqual(list((self.folder / "data").glob("*.result*")), [])
        self.kill_daemon()
        self.restart_and_check()


if __name__ == "__main__":
    support.main()
