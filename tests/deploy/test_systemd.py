#!/usr/bin/env python3
"""The units are hardened as far as they can be, and no further than what they do allows."""

import pathlib
import re
import subprocess
import unittest

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"


def settings(name):
    """Every value that each directive of the unit's sections is given, comments left out."""
    values = {}
    for line in (UNITS / name).read_text().splitlines():
        match = re.match(r"([A-Za-z]+)=(.*)", line)
        if match:
            values.setdefault(match.group(1), []).append(match.group(2))
    return values


def exposure(name):
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager",
                           str(UNITS / name)], capture_output=True, text=True, check=False)
    match = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert match, done.stdout + done.stderr
    return float(match.group(1))


class Systemd(unittest.TestCase):
    def test_exposure_is_low(self):
        self.assertLessEqual(exposure("hbmtuned.service"), 1.5)
        self.assertLessEqual(exposure("hbmtune-probe@.service"), 2.0)

    def test_the_daemon_has_no_device(self):
        daemon = settings("hbmtuned.service")
        self.assertEqual(daemon["PrivateDevices"], ["yes"])
        self.assertNotIn("DeviceAllow", daemon)
        self.assertEqual(daemon["CapabilityBoundingSet"], [""])

    def test_what_would_break_the_daemon_is_not_set(self):
        daemon = settings("hbmtuned.service")
        for directive in ("PrivateUsers", "ProtectProc", "ProcSubset", "MemoryMax"):
            self.assertNotIn(directive, daemon)

    def test_what_would_break_a_probe_is_not_set(self):
        probe = settings("hbmtune-probe@.service")
        for directive in ("MemoryDenyWriteExecute", "PrivateDevices", "MemoryMax"):
            self.assertNotIn(directive, probe)
        self.assertIn("AF_NETLINK", probe["RestrictAddressFamilies"][0].split())
        self.assertEqual(set(probe["DeviceAllow"]), {"/dev/kfd rw", "char-drm rw"})

    def test_a_probe_leaves_no_core_and_goes_first(self):
        probe = settings("hbmtune-probe@.service")
        self.assertEqual(probe["LimitCORE"], ["0"])
        self.assertGreater(int(probe["OOMScoreAdjust"][0]), 0)
        self.assertEqual(probe["KillSignal"], ["SIGINT"])

    def test_a_probe_does_not_run_for_ever(self):
        probe = settings("hbmtune-probe@.service")
        self.assertEqual(probe["RuntimeMaxSec"], ["2h"])
        self.assertEqual(probe["TimeoutStopSec"], ["10"])
        self.assertNotIn("RuntimeMaxSec", settings("hbmtuned.service"))

    def test_the_daemon_alone_asks_for_probes_and_where_they_are(self):
        socket = settings("hbmtune-probe.socket")
        config = (UNITS / "hbmtuned.toml").read_text()
        asked = re.search(r'(?m)^probe_socket = "(.*)"$', config).group(1)
        self.assertEqual(socket["ListenStream"], [asked])
        self.assertEqual(socket["SocketUser"], settings("hbmtuned.service")["User"])
        self.assertEqual(socket["SocketMode"], ["0600"])
        self.assertEqual(socket["Accept"], ["yes"])

    def test_a_start_of_the_daemon_ends_when_it_serves(self):
        daemon = settings("hbmtuned.service")
        self.assertEqual(daemon["Type"], ["notify"])
        self.assertEqual(daemon["TimeoutStartSec"], ["10min"])
        # Unset it is `main` for this type: nobody listens to what a child would say.
        self.assertNotIn("NotifyAccess", daemon)

    def test_every_user_is_declared(self):
        declared = set(re.findall(r"^u (\S+)", (UNITS / "hbmtune.sysusers").read_text(), re.M))
        used = {settings(u)["User"][0] for u in ("hbmtuned.service", "hbmtune-probe@.service")}
        self.assertEqual(used, declared)


if __name__ == "__main__":
    unittest.main()
