"""Daemons that share a node never probe at once: the node's own leases its devices to private ones;
without it the device's lock keeps them apart, whoever's they are."""

import os
import subprocess

import support
from support import NOBODY


class OneProber(support.Case):
    def start_private(self, name, *flags, uid=0):
        """A private daemon in a folder of its own; its socket."""
        folder = self.folder / name
        folder.mkdir()
        os.chown(folder, uid, uid)
        socket = folder / "s"
        words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups",
                 support.BIN / "hbmtuned", "--private", "--idle-exit-seconds", "60",
                 "--state-dir", folder / "state", "--socket", socket, "--probe-journal",
                 self.journal, *flags]
        read_end, write_end = os.pipe()
        self.children.append(subprocess.Popen([*words, "--ready-fd", str(write_end)],
                                              pass_fds=[write_end], env=self.environment()))
        os.close(write_end)
        with os.fdopen(read_end) as note:
            self.assertEqual(note.readline(), f"ready {socket}\n")
        return str(socket)

    def tune(self, socket, trials=3):
        self.client(*self.host_study("--max-trials", trials, "--detach"), HBMTUNE_SOCKET=socket)

    def study(self, socket):
        return self.client_json("show", 1, HBMTUNE_SOCKET=socket)["study"]

    def await_end(self, socket):
        support.wait_until(lambda: self.study(socket)["state"] == "succeeded", 280, socket)

    def assert_never_two(self):
        """Every probe of the journal had ended when the next one started."""
        running = 0
        for event, _, _ in self.journal_lines():
            running += {"started": 1, "finished": -1}[event]
            self.assertLessEqual(running, 1, self.journal.read_text())

    def test_the_nodes_daemon_stands_back_for_a_private_one(self):
        self.start_daemon()
        node = str(self.socket)
        self.tune(node, trials=8)
        support.wait_until(self.journal_lines, 60, "the node's daemon probes")
        private = self.start_private("mine", "--node-socket", node)
        self.tune(private)
        support.wait_until(lambda: "leased by job private-0-" in self.study(node)["message"], 60,
                           "the node's study waits")
        self.await_end(private)
        self.await_end(node)
        self.assert_never_two()
        self.assertIn("is released", self.log.read_text())

    def test_a_private_one_waits_while_a_job_holds_the_device(self):
        import api
        self.start_daemon()
        private = self.start_private("mine", "--node-socket", str(self.socket))
        with api.Client(self.socket) as client:
            client.devices.AcquireLease(
                api.devices.AcquireLeaseRequest(job_id="job-7", devices=["host"]), timeout=60)
            self.tune(private)
            support.wait_until(lambda: "leased by job job-7" in self.study(private)["message"], 60,
                               "the private study waits")
            self.assertEqual(self.journal_lines(), [])
            client.devices.ReleaseLease(api.devices.ReleaseLeaseRequest(job_id="job-7"),
                                        timeout=60)
        self.await_end(private)

    def test_without_it_the_lock_keeps_users_apart(self):
        locks = self.folder / "locks"
        locks.mkdir()
        os.chmod(locks, 0o1777)
        self.journal.touch()
        os.chmod(self.journal, 0o666)
        os.chmod(self.folder, 0o755)
        flags = ("--lock-dir", str(locks), "--node-socket", str(self.folder / "none"))
        sockets = [self.start_private("roots", *flags),
                   self.start_private("nobodys", *flags, uid=NOBODY)]
        for socket in sockets:
            self.tune(socket)
        for socket in sockets:
            self.await_end(socket)
        self.assert_never_two()
        trials = {line[1] for line in self.journal_lines()}
        self.assertEqual(len(self.finished_trials()), 6, trials)


if __name__ == "__main__":
    support.main()
