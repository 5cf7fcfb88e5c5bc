"""The daemon, its helper and the real ROCm SMI library on a node that a mount pretends.

In a private mount namespace an overlay shows the fake tree as /sys/class, to the library as well as
to the daemon, and /dev/shm, where the library keeps its lock, is the test's own. Needs root.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.request

import support

FAKE_NODE = support.BIN.parent / "tests" / "fake_node"
MOUNT = """
mkdir -p "$1/work" && mount --make-rprivate / &&
mount -t overlay overlay -o "lowerdir=/sys/class,upperdir=$1/class,workdir=$1/work" /sys/class &&
mount -t tmpfs -o mode=1777 tmpfs /dev/shm && shift && exec "$@"
"""
RECEIVED = 'hbmtune_gpu_pcie_received_bytes_per_second{pci_bus_id="0000:04:00.0"} 2000'


class RocmSmi(support.Case):
    def setUp(self):
        super().setUp()
        self.sysfs = self.folder / "sys"
        subprocess.run([FAKE_NODE, self.sysfs, "mi210", "2"], check=True)

    def daemon_command(self, *flags, **where):
        return ["unshare", "-m", "sh", "-c", MOUNT, "sh", self.sysfs,
                *super().daemon_command(*flags, **where)]

    def start(self):
        self.start_daemon("--telemetry", "rocm-smi", "--http", "127.0.0.1:0")

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            return answer.read().decode().splitlines()

    def await_line(self, line):
        support.wait_until(lambda: line in self.metrics(), 120, line)

    def helper(self):
        """The running helper's pid."""
        def found():
            pids = subprocess.run(["pgrep", "-P", str(self.daemon.pid)], capture_output=True,
                                  text=True).stdout.split()
            return next((int(pid) for pid in pids
                         if pathlib.Path(f"/proc/{pid}/comm").read_text() == "hbmtune-smi\n"), 0)

        return support.wait_until(found, 120, "the helper runs")

    def assert_sysfs_goes_on(self):
        self.assertTrue(any(line.startswith("hbmtune_gpu_memory_used_bytes{")
                            and "0000:04:00.0" in line for line in self.metrics()))

    def test_the_librarys_figures_stand_beside_those_of_sysfs(self):
        self.start()
        self.await_line(RECEIVED)
        self.assertIn("hbmtune_rocm_smi_up 1", self.metrics())
        self.assert_sysfs_goes_on()
        maps = pathlib.Path(f"/proc/{self.helper()}/maps").read_text()
        self.assertIn("librocm_smi64.so", maps)
        own = pathlib.Path(f"/proc/{self.daemon.pid}/maps").read_text()
        self.assertNotIn("rocm_smi", own, "the library must stay out of the daemon")
        self.assertEqual(self.stop_daemon(), 0)

    def test_a_helper_that_is_killed_or_wedged_in_the_library_comes_back(self):
        self.start()
        for blow in (signal.SIGKILL, signal.SIGSTOP):
            with self.subTest(blow=blow):
                self.await_line(RECEIVED)
                before = self.helper()
                os.kill(before, blow)
                self.await_line("hbmtune_rocm_smi_up 0")
                self.assert_sysfs_goes_on()
                self.assertIsNone(self.daemon.poll())
                self.await_line("hbmtune_rocm_smi_up 1")
                self.assertNotEqual(self.helper(), before)
        self.assertEqual(self.stop_daemon(), 0)

    def test_a_library_that_aborts_takes_nothing_down(self):
        # The library of Debian 12 is built with asserts: a KFD node without io_links is one.
        shutil.rmtree(self.sysfs / "class/kfd/kfd/topology/nodes/0/io_links")
        self.start()
        support.wait_until(lambda: "gives no figures" in self.log.read_text(), 120, "it is told")
        self.assertIn("hbmtune_rocm_smi_up 0", self.metrics())
        self.assert_sysfs_goes_on()
        time.sleep(1)
        self.assertIsNone(self.daemon.poll())
        self.assertEqual(self.stop_daemon(), 0)


if __name__ == "__main__":
    support.main()
