#!/usr/bin/env python3
"""The installed units on a machine whose process 1 is systemd, as root: what a node's users see,
and what the sandboxes really are. Makes users, studies and device nodes, and kills the daemon: for
a throw-away machine, which boot_units.sh boots. Speed is not looked at: it may be emulated.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest
import urllib.request

DAEMON, PROBES = "hbmtuned.service", "hbmtune-probe@*.service"
SETTINGS = pathlib.Path("/etc/hbmtune/hbmtuned.toml")
JOURNAL = pathlib.Path("/var/lib/hbmtune/probes")
COMM_TEST = pathlib.Path("/usr/libexec/hbmtune-check/comm_test")
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
         "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 128,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
HOST_STUDY = ("tune --model /tmp/config.json --seq-len 32 --device host --memory 64MiB "
              "--budget 600s")

# Opens what it is given for reading and writing, and says of each: path, a tab, the outcome.
TRY_TO_OPEN = """
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR))
        print(path, "opens", sep="\\t")
    except OSError as error:
        print(path, error.strerror, sep="\\t")
"""


def run(*words, check=True):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def systemctl(*words, **options):
    return run("systemctl", *words, **options).stdout.strip()


def shown(unit, name):
    return systemctl("show", "-p", name, "--value", unit)


def client(words, user="alice", code=0):
    done = run("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "hbmtune",
               *words.split(), check=False)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def client_json(words):
    return json.loads(client(words + " --output json"))


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def serves():
    return run("hbmtune", "devices", check=False).returncode == 0


def probes():
    return [int(pid) for pid in run("pgrep", "-x", "hbmtune-probe", check=False).stdout.split()]


def a_probe():
    return wait_until(probes, 120, "a probe runs")[0]


def status(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return dict(re.findall(r"(?m)^(\w+):\t(.*)$", text))


def opened(pid, user, *paths):
    """What that user may open in the namespaces and the control group of the process."""
    group = pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().rpartition("::")[2]
    join = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
    out = run("bash", "-c", join, f"/sys/fs/cgroup{group}", "nsenter", "-t", pid, "-m", "setpriv",
              f"--reuid={user}", f"--regid={user}", "--init-groups", sys.executable, "-c",
              TRY_TO_OPEN, *paths).stdout
    return dict(line.split("\t") for line in out.splitlines())


def exposure(unit):
    text = run("systemd-analyze", "security", "--no-pager", unit, check=False).stdout
    return float(re.search(r"Overall exposure level for \S+: ([0-9.]+)", text).group(1))


def page(path):
    with urllib.request.urlopen(f"http://127.0.0.1:9464{path}", timeout=30) as answer:
        return answer.read().decode()


def set_up_the_node():
    """As README says; besides, the users, a model and GPU nodes that no driver is behind."""
    run("systemd-sysusers")
    run("systemd-tmpfiles", "--create")
    systemctl("daemon-reload")
    for user in ("alice", "bob"):
        if run("id", user, check=False).returncode != 0:
            run("useradd", "--user-group", user)
    pathlib.Path("/tmp/config.json").write_text(json.dumps(MODEL))
    run("modprobe", "vgem")
    run("udevadm", "settle")
    kfd = pathlib.Path("/dev/kfd")
    if not kfd.exists():
        os.mknod(kfd, 0o020660, os.makedev(10, 229))  # fuse's number: it opens for everybody
    run("chgrp", "render", kfd)
    os.chmod(kfd, 0o660)
    systemctl("enable", "--now", "hbmtune-probe.socket", "hbmtuned")
    assert serves(), "systemctl start has returned before the daemon serves"


class Units(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        set_up_the_node()

    def setUp(self):
        self.pid = int(shown(DAEMON, "MainPID"))
        self.studies = []

    def tearDown(self):
        for number in self.studies:
            client(f"cancel {number}", user="root")
        wait_until(lambda: not probes(), 60, "no probe is left")

    def start_study(self, *more):
        text = client(" ".join([HOST_STUDY, "--detach", *more]))
        number = int(re.search(r"study (\d+)", text).group(1))
        self.studies.append(number)
        return number

    def finish(self, number):
        def ended():
            study = client_json(f"show {number}")["study"]
            return study if study["state"] in ("succeeded", "failed", "cancelled") else None

        study = wait_until(ended, 900, f"study {number} ends")
        self.studies.remove(number)
        self.assertEqual(study["state"], "succeeded", study)
        return client_json(f"show {number}")["trials"]

    def assert_confined(self, pid, user, oom_score):
        said = status(pid)
        self.assertEqual(said["Uid"].split()[0], run("id", "-u", user).stdout.strip())
        for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(said[name], 16), 0, name)
        self.assertEqual((said["NoNewPrivs"], said["Seccomp"]), ("1", "2"))
        limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
        self.assertRegex(limits, r"Max core file size +0 +0 ")
        score = int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())
        self.assertEqual(score, oom_score)

    def test_systemd_is_process_1_and_both_units_are_active(self):
        self.assertEqual(pathlib.Path("/proc/1/comm").read_text().strip(), "systemd")
        for unit in (DAEMON, "hbmtune-probe.socket"):
            self.assertEqual(systemctl("is-active", unit), "active")
        self.assertEqual(systemctl("--failed", "--plain", "--no-legend", "list-units",
                                   "hbmtune*"), "")

    def test_exposure_is_low_online_too(self):
        self.assertLessEqual(exposure(DAEMON), 1.5)
        self.assertLessEqual(exposure("hbmtune-probe@check.service"), 2.0)

    def test_the_daemon_is_confined_and_has_no_device(self):
        self.assert_confined(self.pid, "hbmtune", -500)
        self.assertEqual(shown(DAEMON, "MemoryMax"), "infinity")
        found = opened(self.pid, "root", "/dev/null", "/dev/kfd", "/dev/dri/renderD128",
                       "/dev/fuse", "/dev/vda", "/usr/bin/hbmtune", "/var/lib/hbmtune/lock",
                       "/etc/hbmtune/hbmtuned.toml")
        self.assertEqual({path for path, outcome in found.items() if outcome == "opens"},
                         {"/dev/null", "/var/lib/hbmtune/lock"}, found)
        soft = re.search(r"Max open files +(\d+)",
                         pathlib.Path(f"/proc/{self.pid}/limits").read_text()).group(1)
        self.assertGreaterEqual(int(soft), 65536)

    def test_a_probe_is_confined_and_has_the_gpus_alone(self):
        self.start_study("--max-trials", "3")
        pid = a_probe()
        self.assert_confined(pid, "hbmtune-probe", 900)
        self.assertEqual(status(pid)["PPid"], "1")
        unit = pathlib.Path(f"/proc/{pid}/cgroup").read_text().strip().rpartition("/")[2]
        self.assertRegex(unit, r"^hbmtune-probe@.*\.service$")
        self.assertEqual(shown(unit, "MemoryMax"), "infinity")
        gpus = {"/dev/kfd", "/dev/dri/card0", "/dev/dri/renderD128"}
        found = opened(pid, "hbmtune-probe", *gpus, "/var/lib/hbmtune/lock", "/tmp/config.json",
                       "/etc/hbmtune/hbmtuned.toml", "/run/hbmtune-probe.sock")
        self.assertEqual({path for path, outcome in found.items() if outcome == "opens"}, gpus,
                         found)
        for path, outcome in opened(pid, "root", "/dev/vda", "/dev/hpet").items():
            self.assertEqual(outcome, "Operation not permitted", path)

    def test_an_ordinary_user_lists_estimates_and_studies_a_model(self):
        self.assertIn("model:mi210", client("devices"))
        self.assertIn("fits", client("estimate --model gpt2 --seq-len 128 --device model:mi210"))
        self.assertIn("evidence PREDICTED", client(
            "tune --model gpt2 --seq-len 128 --device model:mi210 --max-trials 2"))

    def test_a_study_measures_with_kernels_written_at_run_time(self):
        number = self.start_study("--max-trials", "2")
        a_probe()

        def written():
            maps = [pathlib.Path(f"/proc/{pid}/maps").read_text() for pid in probes()]
            return any(re.search(r"(?m) r.xp 00000000 00:00 0 +$", text) for text in maps)

        wait_until(written, 120, "a probe has code that is in no file")
        measured = [trial["measurement"] for trial in self.finish(number)]
        self.assertIn("OK", [one["outcome"].upper() for one in measured], measured)

    def test_a_cancel_is_its_owners_and_ends_the_probe(self):
        number = self.start_study()
        a_probe()
        self.assertIn("another user's", client(f"cancel {number}", user="bob", code=1))
        client(f"cancel {number}")
        self.studies.remove(number)
        wait_until(lambda: not probes(), 20, "the probe is gone")

    def test_a_lease_takes_the_device_from_a_probe(self):
        self.start_study()
        a_probe()
        client("lease --job 7 host")
        self.assertEqual(probes(), [])
        self.assertIn("leased, job 7", client("devices"))
        client("release --job 7")
        a_probe()

    def test_a_killed_daemon_is_back_and_its_study_goes_on(self):
        restarts = int(shown(DAEMON, "NRestarts"))
        number = self.start_study("--max-trials", "2")
        a_probe()
        systemctl("kill", "-s", "KILL", DAEMON)
        wait_until(lambda: int(shown(DAEMON, "NRestarts")) > restarts and serves(), 120,
                   "it serves again")
        self.assertIn("OK", [t["measurement"]["outcome"].upper() for t in self.finish(number)
                             if "measurement" in t])

    def test_reload_takes_over_what_it_can_and_the_process_stays(self):
        before = SETTINGS.read_text()
        since = f"@{time.time():.3f}"
        SETTINGS.write_text(before + "max_connections = 999\n")
        systemctl("reload", DAEMON)
        wait_until(lambda: "setting=max_connections value=999" in self.logged(since), 30,
                   "the log says so")
        SETTINGS.write_text(before)
        systemctl("reload", DAEMON)
        self.assertEqual(int(shown(DAEMON, "MainPID")), self.pid)

    def test_restart_and_stop_end_the_probe_and_the_study_goes_on(self):
        SETTINGS.write_text(SETTINGS.read_text() + f'probe_journal = "{JOURNAL}"\n')
        number = self.start_study("--max-trials", "1")
        old = a_probe()
        systemctl("restart", DAEMON)
        self.assertTrue(serves(), "systemctl restart has returned before it serves")
        wait_until(lambda: old not in probes(), 20, "the probe of before is gone")
        a_probe()
        systemctl("stop", DAEMON)
        wait_until(lambda: not probes(), 20, "the probe is gone")
        self.assertEqual(systemctl("is-active", DAEMON, check=False), "inactive")
        self.assertEqual(systemctl("is-active", "hbmtune-probe.socket"), "active")
        client("devices", code=4)
        systemctl("start", DAEMON)
        self.assertTrue(serves(), "systemctl start has returned before it serves")
        self.finish(number)
        self.assertRegex(JOURNAL.read_text(), rf"finished studies/{number}/trials/\d+ OK")
        self.assertEqual(JOURNAL.owner(), "hbmtune")

    def test_metrics_and_status_page_on_loopback(self):
        self.assertIn("hbmtune_build_info{", page("/metrics"))
        self.assertIn("<html", page("/"))
        for path in ("/healthz", "/readyz"):
            page(path)
        listeners = run("ss", "-Hltn").stdout.split()
        self.assertIn("127.0.0.1:9464", listeners)

    def test_ranks_meet_over_gloo_in_a_probes_sandbox(self):
        """A probe trains one rank today, so the tests of the communicator stand in for it."""
        unit = pathlib.Path("/usr/lib/systemd/system/hbmtune-probe@.service").read_text()
        unit = re.sub(r"(?m)^ExecStart=.*", f"ExecStart={COMM_TEST}", unit)
        unit = re.sub(r"(?m)^(StandardInput|StandardOutput|RuntimeMaxSec)=.*\n", "", unit)
        unit = unit.replace("Type=exec", "Type=oneshot")
        pathlib.Path("/run/systemd/system/hbmtune-check-comm.service").write_text(unit)
        systemctl("daemon-reload")
        systemctl("start", "hbmtune-check-comm.service")
        text = run("journalctl", "-o", "cat", "--no-pager", "-u", "hbmtune-check-comm").stdout
        self.assertRegex(text, r"\[  PASSED  \] [1-9]\d* tests")

    def test_the_journal_has_no_error(self):
        """But for the daemon killed above, and its probe, which systemd reports."""
        lines = run("journalctl", "-b", "--no-pager", "-o", "cat", "-p", "warning",
                    "-u", DAEMON, "-u", PROBES, "-u", "hbmtune-probe.socket").stdout.splitlines()
        lines += [line for line in self.logged("@0").splitlines() if "level=error" in line]
        expected = (r"status=9/KILL|Failed with result 'signal'|setting=probe_journal|"
                    r"^hbmtune-probe@.*Failed with result 'exit-code'")
        self.assertEqual([one for one in lines if not re.search(expected, one)], [])

    @staticmethod
    def logged(since):
        return run("journalctl", "--no-pager", "-o", "cat", "-u", DAEMON, "--since", since).stdout


if __name__ == "__main__":
    unittest.main(verbosity=2)
