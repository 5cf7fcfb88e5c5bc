"""A daemon and its clients in a folder of their own, for tests that drive the real programs.

Every process that a test starts is ended with it. Nothing outside the folder is touched: HOME,
XDG_RUNTIME_DIR and XDG_STATE_HOME point into it.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = pathlib.Path(os.environ["HBMTUNE_BIN"])

# A Llama small enough that a step takes well under a second on two cores.
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 2048,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}

NOBODY = 65534  # a user with no rights

# Exit codes of the client.
DONE, FAILED, USAGE, NOTHING_FITS, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 4, 130


# Nothing here measures speed: a machine that does ten other things may take this long for anything.
PATIENCE = 120


def wait_until(condition, seconds, what):
    """Polls; fails with `what` when it does not come true in time, which is PATIENCE at least.
    Returns what it gave."""
    seconds = max(seconds, PATIENCE)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


def processes_with(text):
    """Pids of the processes that have `text` in their command line or environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            whole = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
        except OSError:
            continue
        if state != "Z" and text.encode() in whole:
            found.append(int(entry.name))
    return found


class Case(unittest.TestCase):
    """One folder, one daemon at most, as many clients as the test likes."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hbmtune-it-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name in ("home", "run", "state"):
            (self.folder / name).mkdir(mode=0o700)
        self.socket = self.folder / "hbmtuned.sock"
        self.journal = self.folder / "journal"
        self.log = self.folder / "hbmtuned.log"
        self.daemon = None
        self.probe_socket = None
        self.children = []
        self.addCleanup(self.stop_all)

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HBMTUNE", "XDG_"))}
        return kept | {
            "HOME": str(self.folder / "home"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "HBMTUNE_SOCKET": str(self.socket),
        } | more

    # The daemon.

    def daemon_command(self, *flags, state="data", socket=None):
        return [BIN / "hbmtuned", "--state-dir", self.folder / state, "--socket",
                socket or self.socket, "--probe-journal", self.journal,
                *(["--probe-socket", self.probe_socket] if self.probe_socket else []), *flags]

    def start_probe_unit(self):
        """hbmtune-probe.socket by systemd's own activator: from now on the daemon's probes run
        behind it, as a user who can read and write nothing of this folder. The activator."""
        folder = self.folder / "unit"
        folder.mkdir(exist_ok=True)
        os.chmod(self.folder, 0o711)
        words = []
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        self.probe_socket = folder / "probe.sock"
        self.probe_socket.unlink(missing_ok=True)
        with open(self.folder / "unit.log", "ab") as log:
            unit = subprocess.Popen(
                [*words, "systemd-socket-activate", "--accept", "--inetd", "-E",
                 f"HOME={folder}", "-E", "GOMP_SPINCOUNT=1000", "-l", self.probe_socket,
                 BIN / "hbmtune-probe"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment())
        self.children.append(unit)
        wait_until(self.probe_socket.exists, 30, "the activator listens")
        return unit

    def start_daemon(self, *flags, before=None, **variables):
        """Starts it and waits until it serves; its port of HTTP, if any, is in self.http. `before`
        is called in its process first."""
        if "--http" not in flags:
            flags = (*flags, "--http", "off")
        read_end, write_end = os.pipe()
        with open(self.log, "ab") as log:
            self.daemon = subprocess.Popen(
                self.daemon_command(*flags, "--ready-fd", str(write_end)), stderr=log,
                stdin=subprocess.DEVNULL, pass_fds=[write_end],
                env=self.environment(**variables), preexec_fn=before,
                restore_signals=False)  # SIGXFSZ stays ignored: see FullDisk
        os.close(write_end)
        self.children.append(self.daemon)
        with os.fdopen(read_end) as note:
            lines = note.read().splitlines()
        self.assertTrue(lines and lines[0].startswith("ready "),
                        f"{lines}; log: {self.log.read_text()}")
        self.http = next((line.split()[1] for line in lines if line.startswith("http ")), None)

    def stop_daemon(self):
        """SIGTERM; returns the exit code."""
        self.daemon.terminate()
        return self.daemon.wait(timeout=PATIENCE)

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def stop_all(self):
        for child in self.children:
            if child.poll() is None:
                child.terminate()
        for child in self.children:
            try:
                child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            for stream in (child.stdout, child.stderr):
                if stream:
                    stream.close()
        for pid in processes_with(str(self.folder)):
            os.kill(pid, signal.SIGTERM)

    # Clients.

    def client(self, *words, code=DONE, timeout=300, cwd=None, **variables):
        """Runs hbmtune to its end and checks the exit code."""
        done = subprocess.run([BIN / "hbmtune", *map(str, words)], capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout, cwd=cwd or self.folder,
                              env=self.environment(**variables))
        self.assertEqual(done.returncode, code,
                         f"hbmtune {' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}")
        return done

    def client_json(self, *words, **options):
        return json.loads(self.client(*words, "--output", "json", **options).stdout)

    def spawn_client(self, *words, **variables):
        """Starts hbmtune and returns the process, with pipes."""
        child = subprocess.Popen([BIN / "hbmtune", *map(str, words)], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                                 cwd=self.folder, env=self.environment(**variables))
        self.children.append(child)
        return child

    def sentence(self, *words, code=USAGE, **options):
        """The one sentence on stderr of a client that fails."""
        done = self.client(*words, code=code, **options)
        self.assertEqual(done.stdout, "")
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("hbmtune: "), lines[0])
        return lines[0].removeprefix("hbmtune: ")

    # Models and studies.

    def model(self, name="tiny", **changes):
        """Path of a config.json: TINY with some keys changed; None drops a key."""
        config = {k: v for k, v in (TINY | changes).items() if v is not None}
        path = self.folder / name / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(config))
        return path

    def host_study(self, *more):
        """Words of a study of real probes: some seconds, minutes on a busy machine."""
        return ("tune", "--model", self.model(), "--seq-len", 64, "--device", "host",
                "--memory", "96MiB", "--budget", "240s", *more)

    def journal_lines(self):
        """(event, trial, rest) of each line that the probes wrote themselves."""
        if not self.journal.exists():
            return []
        return [tuple(line.split(" ", 2)) for line in self.journal.read_text().splitlines()]

    def finished_trials(self):
        """Without those whose prober was gone or stopped: they were cancelled and run again."""
        return [trial for event, trial, rest in self.journal_lines()
                if event == "finished" and rest != "CANCELLED"]

    def stopped_probe(self):
        """The pid of a probe, stopped in the middle of a trial after a finished one: whatever it is
        told, it does not end. None if there is no such now."""
        for event, trial, rest in self.journal_lines()[-1:]:
            if event != "started" or not self.finished_trials():
                return None
            os.kill(int(rest), signal.SIGSTOP)
            if self.journal_lines()[-1][:2] == ("started", trial):
                return int(rest)
            os.kill(int(rest), signal.SIGCONT)
        return None

    def processes(self, program):
        """Pids of this test's own processes that run that program."""
        def runs(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].endswith(
                    b"/" + program.encode())
            except OSError:
                return False

        return [pid for pid in processes_with(str(self.folder)) if runs(pid)]

    def wait_for_study(self, number=1, seconds=280):
        """Until it has ended; the study."""
        def ended():
            study = self.client_json("show", number)["study"]
            return study if study["state"] in ("succeeded", "failed", "cancelled") else None

        return wait_until(ended, seconds, f"study {number} ends")

    def assert_no_process_left(self, seconds=5):
        """Nothing that was started with this folder in its environment is alive."""
        wait_until(lambda: not processes_with(str(self.folder)), seconds,
                   f"processes left: {processes_with(str(self.folder))}")


def main():
    unittest.main(verbosity=2)
