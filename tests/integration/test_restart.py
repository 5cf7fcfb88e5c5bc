"""The daemon dies in mid-study and comes back."""

import support
from support import DONE


class Restart(support.Case):
    def test_a_killed_daemon_goes_on_without_repeating_a_finished_trial(self):
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        support.wait_until(lambda: len(self.finished_trials()) >= 2, 60, "two trials finish")
        self.kill_daemon()
        before = self.finished_trials()
        self.start_daemon()
        self.finish_study()
        after = self.finished_trials()
        self.assertGreater(len(after), len(before), "nothing ran after the restart")
        for trial in set(after):
            self.assertEqual(after.count(trial), 1, f"{trial} finished twice: {after}")
        trials = self.client_json("show", 1)["trials"]
        self.assertTrue(all(trial["state"] == "finished" for trial in trials), trials)
        self.assertEqual({trial["trial"] for trial in trials} & set(before), set(before))

    def test_a_client_that_follows_survives_the_restart(self):
        self.start_daemon()
        client = self.spawn_client(*self.host_study())
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.kill_daemon()
        self.start_daemon()
        out, err = client.communicate(timeout=290)
        self.assertEqual(client.returncode, DONE, out + err)
        self.assertIn("recommended", out)

    def test_clients_that_follow_survive_an_orderly_restart(self):
        """Of a daemon that is stopped while it searches: it cuts calls off, new ones too."""
        slow = ("--model", "llama2-13b", "--world-size", 8, "--framework", "hf-sdpa+deepspeed",
                "--max-trials", 6)
        for words in (("tune", *slow, "--device", "model:mi210"),
                      ("compare", *slow, "--device", "mi210", "--device", "mi300x")):
            self.start_daemon()
            studies = len(self.client_json("studies"))
            client = self.spawn_client(*words)
            support.wait_until(lambda: len(self.client_json("studies")) > studies, 60, "it runs")
            self.assertEqual(self.stop_daemon(), 0)
            self.start_daemon()
            out, err = client.communicate(timeout=290)
            self.assertEqual(client.returncode, DONE, out + err)
            self.assertEqual(self.stop_daemon(), 0)

    def test_a_stopped_daemon_exits_0_and_resumes_too(self):
        self.start_daemon()
        self.client(*self.host_study("--detach"))
        support.wait_until(self.finished_trials, 60, "a trial finishes")
        self.assertEqual(self.stop_daemon(), 0)
        self.start_daemon()
        self.finish_study()
        finished = self.finished_trials()
        self.assertEqual(len(finished), len(set(finished)), finished)

    def finish_study(self):
        self.assertEqual(self.wait_for_study()["state"], "succeeded")


if __name__ == "__main__":
    support.main()
