"""What whoever runs the daemon sees: refusals, metrics, health."""

import ctypes
import errno
import os
import pathlib
import resource
import shutil
import signal
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request

import support


class Refusals(support.Case):
    def refused(self, *command, **options):
        """The sentence and exit code of a daemon that does not start."""
        done = subprocess.run(command, capture_output=True, text=True, timeout=support.PATIENCE,
                              env=self.environment(), **options)
        self.assertNotEqual(done.returncode, 0)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("hbmtuned: "), lines)
        return lines[0]

    def test_a_second_daemon_on_the_same_state_directory(self):
        self.start_daemon()
        command = self.daemon_command("--http", "off", socket=self.folder / "other.sock")
        sentence = self.refused(*command)
        self.assertIn(str(self.folder / "data"), sentence)
        self.assertIn(str(self.daemon.pid), sentence)
        self.client("devices")

    def test_a_second_daemon_on_the_same_socket(self):
        self.start_daemon()
        command = self.daemon_command("--http", "off", state="other")
        self.assertIn(str(self.socket), self.refused(*command))
        self.client("devices")

    def test_a_state_directory_that_cannot_be_made(self):
        (self.folder / "data").write_text("a file")
        sentence = self.refused(*self.daemon_command("--http", "off"))
        self.assertIn(str(self.folder / "data"), sentence)

    def test_an_unwritable_state_directory(self):
        (self.folder / "data").mkdir(mode=0o500)
        command = self.daemon_command("--http", "off")
        if os.geteuid() == 0:
            # Root may write anywhere: become nobody, who must reach the folder and the program.
            self.folder.chmod(0o755)
            program = self.folder / "hbmtuned"
            shutil.copy(support.BIN / "hbmtuned", program)
            program.chmod(0o755)
            command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program,
                       *command[1:]]
        sentence = self.refused(*command)
        self.assertIn(str(self.folder / "data"), sentence)

    def test_a_stale_socket_of_a_killed_daemon_is_replaced(self):
        self.start_daemon()
        self.kill_daemon()
        self.assertTrue(self.socket.exists())
        self.start_daemon()
        self.client("devices")

    def test_a_socket_path_over_107_bytes(self):
        deep = self.folder / ("d" * 100)
        deep.mkdir()
        self.socket = deep / "hbmtuned.sock"
        self.assertGreater(len(str(self.socket)), 107)
        self.start_daemon()
        self.assertIn("model:mi210", self.client("devices").stdout)


class FullDisk(support.Case):
    """A limit on the size of its files, set while it runs, stands in for a disk that is full."""

    def limit_files(self, most_bytes):
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE,
                         (most_bytes, resource.RLIM_INFINITY))

    def test_nothing_is_stored_and_nothing_lost(self):
        self.start_daemon()
        words = ("tune", "--model", "gpt2", "--seq-len", 512, "--device", "model:mi210")
        self.client(*words)
        self.limit_files(4096)
        sentence = self.sentence(*words, code=support.FAILED)
        self.assertRegex(sentence, "disk|full|database|store")
        self.assertEqual(self.client_json("show", 1)["study"]["state"], "succeeded")
        self.assertEqual(len(self.client_json("studies")), 1)
        self.limit_files(resource.RLIM_INFINITY)
        self.client(*words)
        self.assertEqual(len(self.client_json("studies")), 2)

    def test_a_cancel_holds_and_is_stored_when_there_is_room(self):
        self.start_daemon()
        for _ in range(2):
            self.client(*self.host_study("--detach"))
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.limit_files(4096)
        for study, what in ((2, "will not run"), (1, "is told to stop")):
            sentence = self.sentence("cancel", study, code=support.FAILED)
            self.assertIn(f"studies/{study} {what}, but its end cannot be stored now: cannot write "
                          f"{self.folder}/data/hbmtune.db", sentence)
        self.assertIn("a cancel is not stored", self.log.read_text())
        self.assertEqual(self.processes("hbmtune-probe"), [])
        begun = len(self.journal_lines())
        self.limit_files(resource.RLIM_INFINITY)
        for study in (1, 2):
            self.assertEqual(self.wait_for_study(study)["state"], "cancelled")
        self.assertEqual(len(self.journal_lines()), begun)

    def finish_a_trial_without_room(self):
        """A study of which one trial is stored, and the next has ended and cannot be: both."""
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        probe = support.wait_until(self.stopped_probe, 60, "a probe runs, after a finished trial")
        self.limit_files(4096)
        os.kill(probe, signal.SIGCONT)
        support.wait_until(lambda: self.message().startswith("waits: cannot write "), 120,
                           "the study says what it waits for")
        self.assertEqual(self.client_json("show", 1)["study"]["progress"]["finished_trials"], 1)
        trials = self.finished_trials()
        self.assertEqual(len(trials), 2)
        self.assertIn("its end cannot be stored now: cannot write ",
                      self.sentence("cancel", 1, code=support.FAILED))
        self.assertEqual(self.client_json("show", 1)["study"]["state"], "running")
        self.assertIn("waits: cannot write ", self.message())
        return trials

    def message(self):
        return self.client_json("show", 1)["study"]["message"]

    def assert_finished(self, trials):
        found = {trial["trial"] for trial in self.client_json("show", 1)["trials"]
                 if trial["state"] == "finished"}
        self.assertEqual(found, set(trials))

    def test_the_result_of_a_cancelled_study_is_kept_until_there_is_room(self):
        trials = self.finish_a_trial_without_room()
        self.limit_files(resource.RLIM_INFINITY)
        study = self.wait_for_study()
        self.assertEqual((study["state"], study["message"]),
                         ("cancelled", "cancelled by a client"))
        self.assert_finished(trials)

    def test_a_stop_does_not_wait_for_room_and_loses_no_result(self):
        trials = self.finish_a_trial_without_room()
        self.assertEqual(self.stop_daemon(), 0)
        self.start_daemon()  # there is room: the study goes on, its cancel was not stored
        support.wait_until(lambda: self.client_json("show", 1)["study"]["progress"][
            "finished_trials"] >= 2, 60, "the result is taken from the probe's file")
        self.client("cancel", 1)
        self.assertLessEqual(set(trials), set(self.finished_trials()))
        self.assertEqual(len(set(self.finished_trials())), len(self.finished_trials()))
        self.assert_finished(self.finished_trials())

    def test_ctrl_c_waits_for_room_and_then_shows_what_there_is(self):
        self.start_daemon()
        client = self.spawn_client(*self.host_study())
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.limit_files(4096)
        client.send_signal(signal.SIGINT)
        support.wait_until(lambda: "a cancel is not stored" in self.log.read_text()
                           and self.message().startswith("waits: cannot write "), 60,
                           "the study says what it waits for")
        time.sleep(3)  # and so does the answer to its cancel
        self.assertIsNone(client.poll())
        self.limit_files(resource.RLIM_INFINITY)
        out, err = client.communicate(timeout=support.PATIENCE)
        self.assertEqual(client.returncode, support.INTERRUPTED, out + err)
        self.assertIn("cancelled", out)
        self.assertEqual(self.wait_for_study()["state"], "cancelled")

    def test_a_private_daemon_leaves_although_it_cannot_store_an_end(self):
        client = self.spawn_client(*self.host_study("--local"))
        pid = support.wait_until(lambda: self.processes("hbmtuned"), 60, "it runs")[0]
        support.wait_until(lambda: self.processes("hbmtune-probe"), 60, "a probe runs")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        client.kill()
        client.communicate()
        support.wait_until(lambda: not self.processes("hbmtuned"), 90, "it leaves")
        self.assertEqual(self.processes("hbmtune-probe"), [])


# Numbers of <linux/audit.h> and the system calls' table: prlimit64, which sets limits too.
PRLIMIT64 = {"x86_64": 302, "aarch64": 261}


def forbid_to_set_limits():
    """For the process and what it starts, as a sandbox may: a filter of seccomp(2) that answers
    EPERM to a prlimit64 with new limits. They are its third argument, at 32 of the data."""
    load, equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    program = b"".join(struct.pack("HBBI", *line) for line in (
        (load, 0, 0, 0), (equal, 0, 4, PRLIMIT64[os.uname().machine]),
        (load, 0, 0, 32), (equal, 0, 3, 0), (load, 0, 0, 36), (equal, 0, 1, 0),
        (answer, 0, 0, allow), (answer, 0, 0, refuse)))
    lines = ctypes.create_string_buffer(program, len(program))
    filter_ = ctypes.create_string_buffer(struct.pack("HL", len(program) // 8,
                                                      ctypes.addressof(lines)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, filter_, 0, 0) == 0, os.strerror(ctypes.get_errno())


class FewFiles(support.Case):
    """A limit of open files that is too low for what the config asks for."""

    def assert_capped(self, most):
        """So many connections stay open; the others are closed, and nobody spins."""
        line = next(one for one in self.log.read_text().splitlines()
                    if "the limit of open files caps the connections" in one)
        self.assertIn(f"connections={most} max_connections=1024", line)
        clients = []
        for _ in range(most + 20):
            client = socket.socket(socket.AF_UNIX)
            self.addCleanup(client.close)
            client.connect(str(self.socket))
            clients.append(client)

        def closed():
            return sum(1 for client in clients if self.is_closed(client))

        support.wait_until(lambda: closed() == 20, 60, f"20 are closed, not {closed()}")
        for client in clients:
            client.close()
        self.client("devices")

    @staticmethod
    def is_closed(client):
        try:
            # gRPC greets with its settings.
            return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except ConnectionError:
            return True

    def test_caps_the_connections_and_the_log_says_so(self):
        self.start_daemon(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400)))
        self.assert_capped((400 - 256) // 2)

    def test_what_counts_is_the_limit_that_holds(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_NOFILE, (400, 4096))
            forbid_to_set_limits()

        self.start_daemon(before=limited)
        self.assert_capped((400 - 256) // 2)

    def test_none_at_all_is_an_error(self):
        done = subprocess.run(
            self.daemon_command("--http", "off"), capture_output=True, text=True, timeout=60,
            env=self.environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("a limit of 200 open files leaves no room", done.stderr.splitlines()[-1])


class FewAddresses(support.Case):
    def test_a_study_that_cannot_begin_on_this_host_ends_with_the_limit(self):
        probe = self.folder / "probe"
        probe.write_text(f"#!/bin/sh\nulimit -v 3000000\nexec {support.BIN}/hbmtune-probe\n")
        probe.chmod(0o755)
        self.start_daemon("--probe-path", probe)
        self.client("tune", "--model", self.model(), "--seq-len", 64, "--device", "host",
                    "--memory", "1GiB", "--budget", "240s", "--detach")
        study = self.wait_for_study()
        self.assertEqual(study["state"], "failed", study)
        self.assertIn("cannot reserve 32.00 GiB of address space", study["message"])
        self.assertIn("2.86 GiB of address space here (RLIMIT_AS)", study["message"])
        trials = self.client_json("show", 1)["trials"]
        self.assertEqual([one["measurement"]["outcome"].upper() for one in trials], ["INVALID"])


class Stopping(support.Case):
    def test_sigterm_exits_0_and_takes_the_socket_away(self):
        self.start_daemon()
        self.client("devices")
        self.assertEqual(self.stop_daemon(), 0)
        self.assertFalse(self.socket.exists())


class ServiceManager(support.Case):
    """$NOTIFY_SOCKET, as systemd's Type=notify has it."""

    def listen(self, name):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(30)
        return manager

    def assert_silent(self, manager):
        manager.setblocking(False)
        self.assertRaises(BlockingIOError, manager.recv, 100)

    def test_is_told_when_it_serves_and_when_it_leaves(self):
        for name in (str(self.folder / "notify"), f"@hbmtune-test-{os.getpid()}"):
            manager = self.listen(name)
            self.start_daemon(NOTIFY_SOCKET=name)
            self.assertEqual(manager.recv(100), b"READY=1\n", name)
            self.client("devices")
            self.daemon.send_signal(signal.SIGHUP)  # a reload is nothing that is waited for
            self.assertEqual(self.stop_daemon(), 0)
            self.assertEqual(manager.recv(100), b"STOPPING=1\n", name)
            self.assert_silent(manager)

    def test_clients_can_connect_when_it_is_told(self):
        manager = self.listen(str(self.folder / "notify"))
        command = self.daemon_command("--http", "off")
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL,
                                           env=self.environment(
                                               NOTIFY_SOCKET=str(self.folder / "notify")))
        self.children.append(self.daemon)
        self.assertEqual(manager.recv(100), b"READY=1\n")
        self.client("devices")

    def test_hears_nothing_of_a_daemon_that_cannot_serve(self):
        manager = self.listen(str(self.folder / "notify"))
        (self.folder / "data").write_text("a file")
        done = subprocess.run(self.daemon_command("--http", "off"), capture_output=True, timeout=60,
                              env=self.environment(NOTIFY_SOCKET=str(self.folder / "notify")))
        self.assertEqual(done.returncode, 1)
        self.assert_silent(manager)

    def test_hears_nothing_of_a_private_daemon_and_of_probes(self):
        name = str(self.folder / "notify")
        manager = self.listen(name)
        self.client(*self.host_study("--max-trials", 1, "--local"), NOTIFY_SOCKET=name)
        self.assert_silent(manager)
        self.start_daemon(NOTIFY_SOCKET=name)
        self.client(*self.host_study("--detach"))
        probe = support.wait_until(lambda: self.processes("hbmtune-probe"), 60, "a probe runs")[0]
        self.assertNotIn(b"NOTIFY_SOCKET", pathlib.Path(f"/proc/{probe}/environ").read_bytes())

    def test_that_is_not_there_does_no_harm(self):
        long = "/" + "x" * 200
        for name, why in (("/nowhere/notify", "No such file"), ("notify", "is no path or @name"),
                          (long, "is no path or @name"), (str(self.folder), "refused")):
            self.log.unlink(missing_ok=True)
            self.start_daemon(NOTIFY_SOCKET=name)
            self.client("devices")
            self.assertEqual(self.stop_daemon(), 0)
            warnings = [line for line in self.log.read_text().splitlines()
                        if "the service manager is not told" in line]
            self.assertEqual(len(warnings), 2, name)
            self.assertIn(name, warnings[0])
            self.assertIn(why, warnings[0])


class Http(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon("--http", "127.0.0.1:0")

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=60) as answer:
            return answer.read().decode()

    def test_promtool_accepts_the_metrics_after_a_study(self):
        self.client(*self.host_study("--max-trials", 2))
        text = self.get("/metrics")
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              capture_output=True, timeout=support.PATIENCE)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        self.assertTrue(names)
        for name in names:
            self.assertTrue(name.startswith("hbmtune_"), name)

    def test_health(self):
        self.assertTrue(self.get("/healthz"))
        self.assertTrue(self.get("/readyz"))
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.get("/nothing")
        self.assertEqual(caught.exception.code, 404)
        caught.exception.close()


if __name__ == "__main__":
    support.main()
