"""What an admin does: flags that make no sense, settings reloaded, the database looked after, old
things deleted, quotas, a full disk while a job wants a lease."""

import http.client
import json
import os
import pathlib
import re
import resource
import signal
import sqlite3
import stat
import subprocess
import time

import grpc

import api
import support
from api import devices, tuning

TIMEOUT = 120


class Flags(support.Case):
    """Each is refused at once, with exit code 2 and one sentence that names flag and value."""

    def refused(self, *flags):
        done = subprocess.run([support.BIN / "hbmtuned", *map(str, flags)], capture_output=True,
                              text=True, timeout=60, env=self.environment())
        self.assertEqual(done.returncode, 2, done.stderr)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertTrue(lines[0].startswith("hbmtuned: "), lines[0])
        self.assertEqual(done.stdout, "")
        self.assertFalse((self.folder / "data").exists())
        return lines[0]

    def test_values_that_make_no_sense(self):
        plain = self.folder / "file"
        plain.write_text("no program")
        for flag, value in (
                ("--probe-path", "/nope"), ("--probe-path", self.folder), ("--probe-path", plain),
                ("--max-connections", "0"), ("--max-connections", "-1"),
                ("--max-connections-per-user", "0"), ("--max-studies-per-user", "0"),
                ("--max-requests-per-user", "0"), ("--probe-socket", "/" + 107 * "x"),
                ("--ready-fd", "99"), ("--ready-fd", "-2"), ("--socket-mode", "4096"),
                ("--idle-exit-seconds", "-1"), ("--lease-grace-seconds", "-0.5"),
                ("--lease-grace-seconds", "nan"), ("--keep-memory-days", "-3"),
                ("--keep-studies-days", "inf"), ("--profile-dir", "/nope"),
                ("--sysfs-root", "/nope"), ("--admin-groups", "root,no-such-group"),
                ("--http", "127.0.0.1:99999"), ("--http", "0.0.0.0:80"), ("--http", "127.0.0.1"),
                ("--http", "127.0.0.1:"), ("--http", "127.nonsense:80"), ("--http", ":80")):
            with self.subTest(flag=flag, value=value):
                sentence = self.refused("--state-dir", self.folder / "data", flag, value)
                self.assertIn(f"{flag} {value}", sentence)

    def test_a_port_out_of_range_is_not_called_taken(self):
        sentence = self.refused("--state-dir", self.folder / "data", "--http", "127.0.0.1:99999")
        self.assertIn("99999", sentence)
        self.assertNotIn("taken", sentence)

    def test_words_that_are_none(self):
        self.refused("--no-such-flag")
        self.refused("--max-connections", "many")
        self.refused("--max-connections")
        self.refused("--config", "/nope.toml")
        self.assertIn("--state-dir", self.refused("--state-dir", ""))

    def test_a_config_that_is_no_file_is_not_an_empty_one(self):
        self.assertIn("no regular file", self.refused("--config", self.folder))

    def test_what_is_wrong_in_the_file_is_named_where_it_stands(self):
        config = self.folder / "config.toml"
        config.write_text('log_level = "info"\nmax_connections = 0\n')
        self.assertIn(f"{config}:2: max_connections = 0: must be", self.refused("--config", config))
        # The flag goes before the file, and is what is blamed then.
        self.assertIn("--max-connections -1: must be",
                      self.refused("--config", config, "--max-connections", -1))
        config.write_text('default_role = "king"\n')
        roles = "'king' is not none, read, tune or admin"
        self.assertIn(f"{config}:1: default_role: {roles}", self.refused("--config", config))
        self.assertIn(f"--default-role: {roles}", self.refused("--default-role", "king"))

    def test_help_fits_80_columns_and_names_every_setting(self):
        out = subprocess.run([support.BIN / "hbmtuned", "--help"], capture_output=True, text=True,
                             timeout=60).stdout
        # But for the line with the path of the program.
        lines = [line for line in out.splitlines() if not line.startswith("Usage: ")]
        self.assertEqual([line for line in lines if len(line) > 80], [])
        settings = (pathlib.Path(__file__).parents[2] / "deploy/systemd/hbmtuned.toml").read_text()
        for name in re.findall(r"(?m)^(?:# )?(\w+) = ", settings):
            self.assertIn(f"  --{name.replace('_', '-')} ", out)


class TwoSockets(support.Case):
    def test_private_daemons_on_two_sockets_do_not_wait_for_each_other(self):
        words = ("tune", "--model", "gpt2", "--seq-len", 256, "--device", "model:mi210",
                 "--max-trials", 2, "--local", "--socket")
        first = self.spawn_client(*words, self.folder / "one.sock")
        second = self.spawn_client(*words, self.folder / "two.sock")
        for child in (first, second):
            out, err = child.communicate(timeout=280)
            self.assertEqual(child.returncode, support.DONE, out + err)


class Http(support.Case):
    def test_head_answers_like_get_without_a_body(self):
        self.start_daemon("--http", "127.0.0.1:0")
        for path, status in (("/healthz", 200), ("/metrics", 200), ("/", 200), ("/nope", 404)):
            heads = {}
            for method in ("GET", "HEAD"):
                connection = http.client.HTTPConnection(self.http, timeout=30)
                connection.request(method, path)
                answer = connection.getresponse()
                heads[method] = (answer.status, answer.getheader("Content-Type"))
                body = answer.read()
                connection.close()
                if method == "HEAD":
                    self.assertEqual(body, b"")
            self.assertEqual(heads["HEAD"], heads["GET"])
            self.assertEqual(heads["GET"][0], status)
        connection = http.client.HTTPConnection(self.http, timeout=30)
        connection.request("POST", "/healthz", body="x")
        self.assertEqual(connection.getresponse().status, 405)
        connection.close()


class Database(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.client("tune", "--model", "gpt2", "--seq-len", 256, "--device", "model:mi210",
                    "--max-trials", 3)
        self.file = self.folder / "data" / "hbmtune.db"

    def db(self, *words, code=0):
        done = subprocess.run([support.BIN / "hbmtuned", "db", *map(str, words), "--state-dir",
                               self.folder / "data"], capture_output=True, text=True, timeout=60,
                              env=self.environment())
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_only_its_user_may_read_it(self):
        for file in self.file.parent.glob("hbmtune.db*"):
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600, file)

    def test_a_backup_of_a_running_daemon_is_whole_and_can_be_used(self):
        copy = self.folder / "copy.db"
        self.db("backup", copy)
        self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o600)
        connection = sqlite3.connect(copy)
        self.assertEqual(connection.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        self.assertEqual(connection.execute("SELECT COUNT(*) FROM studies").fetchone(), (1,))
        connection.close()
        self.assertEqual(sorted(path.name for path in self.folder.glob("copy.db*")), ["copy.db"])
        self.assertIn(str(copy), self.db("backup", copy, code=1).stderr)
        self.stop_daemon()
        os.replace(copy, self.file)
        for left in self.file.parent.glob("hbmtune.db-*"):
            left.unlink()
        self.start_daemon()
        self.assertEqual(self.client_json("show", 1)["study"]["state"], "succeeded")

    def test_no_backup_of_what_is_corrupt(self):
        self.stop_daemon()
        with open(self.file, "r+b") as file:
            file.seek(2 * 4096)
            file.write(b"\xa5" * 8 * 4096)
        self.assertIn("hbmtune.db", self.db("backup", self.folder / "copy", code=1).stderr)
        self.assertFalse((self.folder / "copy").exists())

    def test_check_says_what_is_wrong(self):
        self.assertIn("ok", self.db("check").stdout)
        self.stop_daemon()
        connection = sqlite3.connect(self.file)
        connection.execute("UPDATE studies SET progress_finished_trials=99")
        connection.commit()
        connection.close()
        self.assertIn("99", self.db("check", code=1).stderr)
        self.file.write_bytes(b"this is no database, whatever its name says" * 99)
        self.assertIn("hbmtune.db", self.db("check", code=1).stderr)
        self.file.unlink()
        self.assertIn("there is no database", self.db("check", code=1).stderr)

    def test_export_has_every_trial(self):
        lines = self.db("export").stdout.splitlines()
        self.assertEqual(len(lines), 1)
        study = json.loads(lines[0])
        self.assertEqual(study["state"], "SUCCEEDED")
        self.assertEqual(len(study["trials"]), study["progress_finished_trials"])
        self.assertIn("config_micro_batch", study["trials"][0])
        self.db("no-such-verb", code=2)

    def test_what_is_old_is_deleted_and_nothing_else(self):
        self.client("tune", "--model", "gpt2", "--seq-len", 256, "--device", "model:mi210",
                    "--max-trials", 2)
        self.stop_daemon()
        day = 86_400_000_000
        now = time.time_ns() // 1000
        connection = sqlite3.connect(self.file)
        connection.execute("UPDATE studies SET end_time_us=? WHERE id=1", (now - 3 * day,))
        for age in (1, 5):
            connection.execute("INSERT INTO memory_minutes VALUES ('0000:03:00.0',?,1,2.0,3)",
                               (now - age * day,))
            connection.execute("INSERT INTO findings(time_us, device, job_id, kind, step, message,"
                               " advice) VALUES (?,'host','7','leak',1,'m','a')",
                               (now - age * day,))
        connection.commit()
        connection.close()
        self.start_daemon("--keep-studies-days", "2", "--keep-memory-days", "2",
                          "--keep-findings-days", "2")

        def pruned():
            view = sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)
            counts = [view.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]
                      for table in ("studies", "memory_minutes", "findings")]
            lost = view.execute("SELECT COUNT(*) FROM trials WHERE study_id=1").fetchone()[0]
            view.close()
            return counts == [1, 1, 1] and lost == 0

        support.wait_until(pruned, 30, "old rows are deleted")
        self.assertEqual([study["study"] for study in self.client_json("studies")], ["studies/2"])


class Findings(support.Case):
    def test_findings_outlive_the_daemon(self):
        self.start_daemon()
        with api.Client(self.socket) as client:
            def reports():
                for step in range(300):
                    live = (1 << 30) + step * (4 << 20)
                    yield devices.ReportAllocatorRequest(
                        device="host", job_id="7", report=devices.AllocatorReport(
                            step=step, allocated_bytes=live, active_bytes=live,
                            reserved_bytes=live + (64 << 20)))

            found = client.devices.ReportAllocator(reports(), timeout=TIMEOUT).findings
        self.assertTrue(found)
        self.kill_daemon()
        self.start_daemon()
        with api.Client(self.socket) as client:
            stored, token = [], ""
            while True:
                page = client.devices.ListFindings(devices.ListFindingsRequest(
                    device="host", page_size=1, page_token=token), timeout=TIMEOUT)
                stored += page.findings
                token = page.next_page_token
                if not token:
                    break
            self.assertEqual([one.finding for one in reversed(stored)], list(found))
            self.assertEqual({(one.device, one.job_id) for one in stored}, {("host", "7")})
            other = client.devices.ListFindings(
                devices.ListFindingsRequest(device="model:mi210"), timeout=TIMEOUT)
            self.assertEqual(len(other.findings), 0)
            minutes = client.devices.ListMemoryMinutes(
                devices.ListMemoryMinutesRequest(device="host"), timeout=TIMEOUT)
            self.assertEqual(len(minutes.minutes), 0)


class Reload(support.Case):
    def setUp(self):
        super().setUp()
        self.config = self.folder / "config.toml"
        self.config.write_text("max_studies_per_user = 5\n")
        self.start_daemon("--config", str(self.config))
        self.api = api.Client(self.socket)
        self.addCleanup(self.api.channel.close)

    def reload(self, text, said):
        self.config.write_text(text)
        self.daemon.send_signal(signal.SIGHUP)
        support.wait_until(lambda: said in self.log.read_text(), 30, f"the log says {said}")

    def test_a_pipe_or_folder_in_place_of_the_file_changes_nothing(self):
        self.config.unlink()
        os.mkfifo(self.config)
        self.daemon.send_signal(signal.SIGHUP)
        support.wait_until(lambda: "no regular file" in self.log.read_text(), 30, "it is refused")
        self.assertNotIn("a setting is reloaded", self.log.read_text())
        self.daemon.terminate()
        self.assertEqual(self.daemon.wait(timeout=30), 0)

    def create(self):
        """A study that waits: its device is leased."""
        request = tuning.CreateStudyRequest(device="host", budget_seconds=60, client_probes=True)
        request.model.preset = "gpt2"
        request.workload.seq_len = 128
        return self.api.tuning.CreateStudy(request, timeout=TIMEOUT)

    def test_a_quota_holds_and_is_changed_without_a_restart(self):
        self.reload("max_studies_per_user = 2\n", "max_studies_per_user")
        first = self.create()
        self.create()
        with self.assertRaises(grpc.RpcError) as caught:
            self.create()
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(b"QUOTA_EXCEEDED",
                      dict(caught.exception.trailing_metadata())["grpc-status-details-bin"])
        self.api.tuning.CancelStudy(tuning.CancelStudyRequest(name=first.name), timeout=TIMEOUT)
        self.create()

    def test_a_wrong_file_changes_nothing(self):
        self.reload("max_studies_per_user = 0\n", "nothing is reloaded")
        self.create()

    def test_what_needs_a_restart_is_said(self):
        self.reload("max_studies_per_user = 6\nhttp = \"127.0.0.1:0\"\nlog_level = \"error\"\n",
                    "log_level")
        log = self.log.read_text()
        self.assertNotIn("setting=http", log, "the flag goes first: nothing has changed")


class Disk(support.Case):
    """A limit on the size of its files stands in for a disk that is full."""

    def limit_files(self, most_bytes):
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE,
                         (most_bytes, resource.RLIM_INFINITY))

    def get(self, path):
        connection = http.client.HTTPConnection(self.http, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer.status, body

    def test_a_study_that_is_cancelled_meanwhile_stays_so(self):
        self.start_daemon()
        with api.Client(self.socket) as client:
            request = tuning.CreateStudyRequest(device="host", budget_seconds=60,
                                                client_probes=True)
            request.model.preset = "gpt2"
            request.workload.seq_len = 128
            study = client.tuning.CreateStudy(request, timeout=TIMEOUT)
            support.wait_until(lambda: client.tuning.GetStudy(
                tuning.GetStudyRequest(name=study.name),
                timeout=TIMEOUT).state == tuning.STUDY_STATE_RUNNING, 60, "it runs")
            self.limit_files(4096)
            ask = tuning.CancelStudyRequest(name=study.name)
            with self.assertRaises(grpc.RpcError) as caught:
                client.tuning.CancelStudy(ask, timeout=TIMEOUT)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
            self.assertIn("is told to stop, but its end cannot be stored now: cannot write ",
                          caught.exception.details())
            self.limit_files(resource.RLIM_INFINITY)
            support.wait_until(lambda: client.tuning.GetStudy(
                tuning.GetStudyRequest(name=study.name),
                timeout=TIMEOUT).state == tuning.STUDY_STATE_CANCELLED, 60, "it ends")
        self.kill_daemon()
        self.start_daemon()
        self.assertEqual(self.client_json("show", 1)["study"]["state"], "cancelled")

    def test_leases_go_on_without_being_durable_and_are_stored_later(self):
        self.start_daemon("--http", "127.0.0.1:0")
        with api.Client(self.socket) as client:
            ask = devices.AcquireLeaseRequest(job_id="1", devices=["model:mi210"])
            self.assertTrue(client.devices.AcquireLease(ask, timeout=TIMEOUT).durable)
            self.limit_files(4096)
            ask = devices.AcquireLeaseRequest(job_id="2", devices=["model:mi300x"])
            self.assertFalse(client.devices.AcquireLease(ask, timeout=TIMEOUT).durable)
            self.assertFalse(client.devices.AcquireLease(ask, timeout=TIMEOUT).durable)
            client.devices.ReleaseLease(devices.ReleaseLeaseRequest(job_id="1"), timeout=TIMEOUT)
            self.assertEqual(self.get("/readyz")[0], 503)
            self.assertIn("hbmtune_store_degraded 1", self.get("/metrics")[1])
            self.limit_files(resource.RLIM_INFINITY)
            support.wait_until(lambda: self.get("/readyz")[0] == 200, 30, "it recovers")
            self.assertIn("hbmtune_store_degraded 0", self.get("/metrics")[1])
            support.wait_until(
                lambda: client.devices.AcquireLease(ask, timeout=TIMEOUT).durable, 30,
                "the lease is stored after all")
        time.sleep(2)  # two ticks: the release of job 1 is stored as well
        self.kill_daemon()
        self.start_daemon()
        with api.Client(self.socket) as client:
            held = {device.name: device.leased_by for device in client.devices.ListDevices(
                devices.ListDevicesRequest(), timeout=TIMEOUT).devices if device.leased_by}
        self.assertEqual(held, {"model:mi300x": "2"})


if __name__ == "__main__":
    support.main()
