"""The private daemon of --local: started once, shared, gone after its last client."""

import os
import signal
import socket
import subprocess

import support
from support import DONE, UNREACHABLE

ESTIMATE = ("estimate", "--local", "--model", "llama2-7b", "--device", "model:mi210",
            "--precision", "bf16-amp")


class Local(support.Case):
    def environment(self, **more):
        variables = super().environment(**more)
        del variables["HBMTUNE_SOCKET"]
        return variables

    def daemons(self):
        return self.processes("hbmtuned")

    def test_starts_one_and_it_leaves_by_itself(self):
        answer = self.client_json(*ESTIMATE)
        self.assertIn("fits", answer)
        self.assertEqual(len(self.daemons()), 1)
        self.assert_no_process_left(seconds=9)

    def test_concurrent_runs_share_one_daemon(self):
        clients = [self.spawn_client(*ESTIMATE) for _ in range(8)]
        for client in clients:
            out, err = client.communicate(timeout=support.PATIENCE)
            self.assertEqual(client.returncode, DONE, out + err)
        # The others said "ready" on its behalf and left.
        support.wait_until(lambda: len(self.daemons()) == 1, 3, "one daemon is left")

    def test_a_caller_that_waits_for_the_output_does_not_wait_for_the_daemon(self):
        # Somebody who stays connected keeps the daemon: with the pipes open in it this would hang.
        self.client(*ESTIMATE)
        with socket.socket(socket.AF_UNIX) as stays:
            stays.connect(str(self.folder / "run/hbmtune/private.sock"))
            subprocess.run([support.BIN / "hbmtune", *ESTIMATE], env=self.environment(), check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           timeout=support.PATIENCE)
            self.assertEqual(len(self.daemons()), 1)

    def test_a_killed_client_leaves_none_behind(self):
        words = [*self.host_study(), "--local"]
        client = self.spawn_client(*words)
        support.wait_until(lambda: self.processes("hbmtune-probe"), 30, "a probe runs")
        client.send_signal(signal.SIGKILL)
        client.wait()
        self.assert_no_process_left(seconds=20)

    def test_a_detached_study_ends_before_its_daemon_leaves(self):
        self.client(*self.host_study("--max-trials", 2, "--detach"), "--local")
        support.wait_until(lambda: not self.daemons(), 60, "the daemon leaves")
        study = self.client_json("studies", "--local")[0]
        self.assertEqual(study["state"], "succeeded")

    def test_without_any_daemon_the_client_says_how_to_get_one(self):
        sentence = self.sentence("devices", code=UNREACHABLE)
        self.assertIn("no daemon at", sentence)
        self.assertIn("--local", sentence)

    def test_without_the_flag_a_private_daemon_that_runs_is_found(self):
        self.client(*ESTIMATE)
        self.assertIn("model:mi210", self.client("devices").stdout)

    def test_of_one_that_hangs_it_says_which_process_to_end(self):
        self.client(*ESTIMATE)
        pid, = self.daemons()
        os.kill(pid, signal.SIGSTOP)
        try:
            sentence = self.sentence(*ESTIMATE, code=UNREACHABLE)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertIn(f"the private daemon (process {pid}) does not answer", sentence)
        self.assertIn(f"kill -9 {pid}", sentence)

    def test_of_one_that_does_not_leave_too(self):
        self.client(*ESTIMATE)
        pid, = self.daemons()
        os.kill(pid, signal.SIGSTOP)
        try:
            socket, = self.folder.glob("run/**/private.sock")
            socket.unlink()  # as when it hangs after it has closed that
            sentence = self.sentence(*ESTIMATE, code=UNREACHABLE)
        finally:
            os.kill(pid, signal.SIGCONT)
        self.assertIn(f"the private hbmtuned (process {pid}) of ", sentence)
        self.assertIn(f"end it with kill {pid}", sentence)

    def test_a_daemon_that_cannot_start_says_why(self):
        state = self.folder / "state" / "hbmtune"
        state.write_text("a file where the state folder should be")
        sentence = self.sentence(*ESTIMATE, code=UNREACHABLE)
        self.assertIn("the private daemon did not start", sentence)
        self.assertIn(str(state), sentence)


if __name__ == "__main__":
    support.main()
