"""Probes in a unit of their own, as where hbmtune is installed: behind a socket of systemd's
activator, as another user, out of reach of the daemon's signals and files."""

import os
import pathlib
import re
import signal
import time

import support

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd/hbmtuned.toml"


def parent_of(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class ProbeUnit(support.Case):
    def setUp(self):
        super().setUp()
        self.unit = self.start_probe_unit()

    def probe(self):
        """Pid of a probe that runs and has begun its trial."""
        def begun():
            lines = self.journal_lines()
            return [int(lines[-1][2])] if lines and lines[-1][0] == "started" else []

        return support.wait_until(lambda: [pid for pid in begun()
                                           if pid in self.processes("hbmtune-probe")], 60,
                                  "a probe runs")[0]

    def stop_in_its_tracks(self):
        """The pid of a probe that is stopped (SIGSTOP) while its trial runs."""
        for _ in range(50):
            pid = self.probe()
            os.kill(pid, signal.SIGSTOP)
            if self.journal_lines()[-1] == ("started", self.journal_lines()[-1][1], str(pid)):
                return pid
            os.kill(pid, signal.SIGCONT)  # it had finished
        raise AssertionError("no probe could be stopped")

    def message(self, number=1):
        return self.client_json("show", number)["study"]["message"]

    def await_message(self, part):
        support.wait_until(lambda: part in self.message(), 60, f"the study says: {part}")

    def test_studies_run_and_no_probe_is_the_daemons_child(self):
        self.start_daemon()
        self.client(*self.host_study("--max-trials", 4, "--detach"))
        pid = self.probe()
        self.assertEqual(parent_of(pid), self.unit.pid)
        if os.geteuid() == 0:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            self.assertIn(f"Uid:\t{support.NOBODY}\t", status)
        self.client("tune", "--model", "gpt2", "--seq-len", 128, "--device", "model:mi210",
                    "--max-trials", 5)
        self.assertEqual(self.wait_for_study(1)["state"], "succeeded")
        trials = self.client_json("show", 1)["trials"]
        self.assertGreater(max(trial["measurement"]["tokens_per_second"]
                               for trial in trials), 0, trials)
        self.assertEqual(len(self.finished_trials()), len(trials))
        self.assertEqual(list((self.folder / "data").glob("*.result*")), [])

    def test_a_cancel_ends_the_probe(self):
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        self.probe()
        self.client("cancel", 1)
        support.wait_until(lambda: not self.processes("hbmtune-probe"), 10, "the probe is gone")
        self.assertEqual(list((self.folder / "data").glob("*.result*")), [])

    def test_a_killed_daemons_probe_ends_and_its_study_goes_on(self):
        self.start_daemon()
        self.client(*self.host_study("--max-trials", 5, "--detach"))
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.probe()
        self.kill_daemon()
        support.wait_until(lambda: not self.processes("hbmtune-probe"), 20, "the probe is gone")
        self.start_daemon()
        self.assertEqual(self.wait_for_study()["state"], "succeeded")
        finished = self.finished_trials()
        self.assertEqual(len(finished), len(set(finished)), finished)

    def test_a_new_daemon_waits_for_the_probe_that_does_not_end(self):
        self.start_daemon()
        self.client(*self.host_study("--max-trials", 3, "--detach"))
        pid = self.stop_in_its_tracks()
        self.kill_daemon()
        self.start_daemon()
        # Stopped before the old daemon heard of it, it is nobody's that the lock's file names.
        self.await_message("is held by ")
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(self.wait_for_study()["state"], "succeeded")

    def test_a_killed_probe_is_a_trial_that_crashed(self):
        self.start_daemon()
        self.client(*self.host_study("--max-trials", 4, "--detach"))
        pid = self.stop_in_its_tracks()
        os.kill(pid, signal.SIGKILL)
        self.wait_for_study()
        measured = [trial["measurement"] for trial in self.client_json("show", 1)["trials"]]
        crashed = [one for one in measured if one["outcome"].upper() == "CRASHED"]
        self.assertEqual(len(crashed), 1, measured)
        self.assertRegex(crashed[0]["message"],
                         rf"the probe \(process {pid}\) ended its connection without a result .*"
                         r"journalctl -u 'hbmtune-probe@\*'")

    def test_a_study_waits_for_the_socket(self):
        self.unit.terminate()
        self.unit.wait()
        self.start_daemon()
        self.client(*self.host_study("--max-trials", 2, "--detach"))
        self.await_message("Connection refused; is hbmtune-probe.socket active?")
        self.probe_socket.unlink()
        self.await_message("No such file or directory")
        self.client("devices")
        self.start_probe_unit()
        self.assertEqual(self.wait_for_study()["state"], "succeeded")

    def test_the_sample_config_is_what_the_daemon_takes(self):
        """As it is shipped; and what it shows as default is the default."""
        config = self.folder / "hbmtuned.toml"
        config.write_text(SAMPLE.read_text())
        self.start_daemon("--config", config)
        config.write_text(re.sub(r"(?m)^# (\w+ = )", r"\1", SAMPLE.read_text()))
        self.daemon.send_signal(signal.SIGHUP)
        time.sleep(3)
        self.client("devices")
        log = self.log.read_text()
        self.assertNotRegex(log, "needs a restart|is reloaded|nothing is reloaded")
        config.write_text(SAMPLE.read_text() + "max_connections = 7\n")
        self.daemon.send_signal(signal.SIGHUP)
        support.wait_until(lambda: "setting=max_connections" in self.log.read_text(), 20,
                           "the reload is seen")

    def test_the_sample_config_names_every_setting(self):
        named = set(re.findall(r"(?m)^(?:# )?(\w+) = ", SAMPLE.read_text()))
        options = (SAMPLE.parents[2] / "daemon/options.h").read_text()
        settings = set(re.findall(r'v\(Field\{"(\w+)"', options))
        of_private_daemons = {"private", "idle_exit_seconds", "ready_fd", "node_socket"}
        self.assertEqual(named, settings - of_private_daemons)


if __name__ == "__main__":
    support.main()
