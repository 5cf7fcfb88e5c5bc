"""Figures of GPUs that a sysfs tree pretends, and the SMI helper's, whatever becomes of it."""

import shutil
import subprocess
import urllib.request

import support

FAKE_NODE = support.BIN.parent / "tests" / "fake_node"

# Answers as hbmtune-smi does; what it does next stands in a file that the test writes.
HELPER = """#!/bin/sh
echo started >> {folder}/helper-log
while read -r line; do
  case $(cat {folder}/helper-mood) in
    die) exit 3 ;;
    wedge) sleep 1000 ;;
    babble) echo 'this is no JSON' ;;
    *) echo '{{"devices": [{{"pci_address": "0000:03:00.0", "energy_joules": 12.5}}]}}' ;;
  esac
done
"""


class Telemetry(support.Case):
    def setUp(self):
        super().setUp()
        self.sysfs = self.folder / "sys"
        subprocess.run([FAKE_NODE, self.sysfs, "mi300x", "2"], check=True)
        self.mood = self.folder / "helper-mood"
        self.mood.write_text("well")
        # The daemon looks for its helper beside itself.
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        shutil.copy(support.BIN / "hbmtuned", self.programs)
        helper = self.programs / "hbmtune-smi"
        helper.write_text(HELPER.format(folder=self.folder))
        helper.chmod(0o755)

    def daemon_command(self, *flags, **where):
        return [self.programs / "hbmtuned", *super().daemon_command(*flags, **where)[1:]]

    def start(self, *flags):
        self.start_daemon("--sysfs-root", str(self.sysfs), "--http", "127.0.0.1:0", *flags)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def wait_for(self, start, seconds=60):
        """A line of /metrics that starts so; a line of help does not count."""
        return support.wait_until(
            lambda: any(line.startswith(start) for line in self.metrics().splitlines()),
            seconds, start)

    def helper_pids(self):
        return [pid for pid in support.processes_with(str(self.programs / "hbmtune-smi"))
                if pid != self.daemon.pid]

    def test_the_helpers_figures_stand_beside_those_of_sysfs(self):
        self.start("--telemetry", "rocm-smi")
        self.wait_for("hbmtune_rocm_smi_up 1")
        text = self.metrics()
        self.assertIn('hbmtune_gpu_energy_joules_total{pci_bus_id="0000:03:00.0"} 12.5', text)
        self.assertIn("hbmtune_gpu_memory_used_bytes{", text)
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True,
                              capture_output=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.stop_daemon(), 0)
        self.assertEqual(self.helper_pids(), [])

    def test_a_helper_that_dies_wedges_or_babbles_takes_nothing_down(self):
        for mood in ("die", "wedge", "babble"):
            with self.subTest(mood=mood):
                self.mood.write_text(mood)
                self.start("--telemetry", "auto")
                support.wait_until(lambda: "gives no figures" in self.log.read_text(), 60, mood)
                text = self.metrics()
                self.assertIn("hbmtune_rocm_smi_up 0", text)
                self.assertNotIn("energy_joules", text)
                self.assertIn("hbmtune_gpu_memory_used_bytes{", text)
                self.assertEqual(self.stop_daemon(), 0)
                self.log.unlink()

    def test_sysfs_alone_starts_no_helper(self):
        self.start("--telemetry", "sysfs")
        self.wait_for("hbmtune_gpu_memory_used_bytes{")
        self.assertFalse((self.folder / "helper-log").exists())
        self.assertNotIn("rocm_smi", self.metrics())

    def test_names_of_the_device_metrics_exporter_are_an_option(self):
        self.start("--telemetry", "sysfs")
        self.wait_for("hbmtune_gpu_memory_used_bytes{")
        self.assertNotIn("amd_gpu_", self.metrics())
        self.stop_daemon()
        self.start("--telemetry", "sysfs", "--compat-metrics", "dme")
        self.wait_for("amd_gpu_used_vram{")
        text = self.metrics()
        ours = self.value(text, "hbmtune_gpu_memory_total_bytes")
        self.assertEqual(self.value(text, "amd_gpu_total_vram") * (1 << 20), ours)
        self.assertIn("amd_gpu_package_power{", text)
        self.assertNotIn("amd_gpu_average_package_power{", text)
        line = next(line for line in text.splitlines() if line.startswith("amd_gpu_used_vram{"))
        for label in ("gpu_id=", "gpu_uuid=", "card_model=", "hostname=", "gpu_partition_id="):
            self.assertIn(label, line)

    @staticmethod
    def value(text, name):
        line = next(line for line in text.splitlines() if line.startswith(name + "{"))
        return float(line.rsplit(" ", 1)[1])

    def test_minutes_of_used_memory_are_stored(self):
        """The sampler counts minutes of the clock since boot: one ends within 60 s."""
        import api
        self.start("--telemetry", "sysfs")
        with api.Client(self.socket) as client:
            def minutes():
                return client.devices.ListMemoryMinutes(api.devices.ListMemoryMinutesRequest(
                    device="hip:0"), timeout=60).minutes

            found = support.wait_until(minutes, 150, "a minute's row")
            gpu = client.devices.GetDevice(api.devices.GetDeviceRequest(name="hip:0"), timeout=60)
        self.assertEqual(found[0].least_bytes, gpu.used_bytes)
        self.assertEqual(found[0].most_bytes, gpu.used_bytes)
        self.assertAlmostEqual(found[0].mean_bytes, gpu.used_bytes, delta=1)


if __name__ == "__main__":
    support.main()
