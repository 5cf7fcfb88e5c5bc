"""The status page in a headless Chromium (Debian's chromium), run by hand:

    HBMTUNE_BIN=build/release/bin /usr/bin/python3 tests/integration/status_page.py FOLDER

Two pretended GPUs whose memory moves, a study of real probes on the host, one that is over, a job
that leaks. Checks what is there, that it moves, that nothing is wider than the screen and that the
browser complains of nothing; leaves pictures in FOLDER, to be looked at.
"""

import pathlib
import subprocess
import sys
import threading

import api
import support
from api import devices
from browser import Browser

FAKE_NODE = support.BIN.parent / "tests" / "fake_node"
LAYOUTS = (("wide-light", 1280, False), ("wide-dark", 1280, True), ("narrow-light", 390, False),
           ("narrow-dark", 390, True))


class StatusPage(support.Case):
    pictures = pathlib.Path("status-page")

    def setUp(self):
        super().setUp()
        self.sysfs = self.folder / "sys"
        subprocess.run([FAKE_NODE, self.sysfs, "mi300x", "2"], check=True)
        self.start_daemon("--sysfs-root", str(self.sysfs), "--http", "127.0.0.1:0")
        self.over = threading.Event()
        mover = threading.Thread(target=self.move_memory)
        mover.start()
        self.addCleanup(mover.join)
        self.addCleanup(self.over.set)
        self.browser = Browser()
        self.addCleanup(self.browser.close)

    def move_memory(self):
        """Used memory of the GPUs goes up and down by tens of GiB."""
        files = sorted(self.sysfs.glob("class/drm/card*/device/mem_info_vram_used"))
        step = 0
        while not self.over.wait(0.5):
            step += 1
            for number, file in enumerate(files):
                file.write_text(str(((step * (3 + number)) % 60 + 20) << 30))

    def report_leak(self):
        def reports():
            for step in range(300):
                live = (1 << 30) + step * (4 << 20)
                yield devices.ReportAllocatorRequest(
                    device="host", job_id="4711", report=devices.AllocatorReport(
                        step=step, allocated_bytes=live, active_bytes=live,
                        reserved_bytes=live + (64 << 20)))

        with api.Client(self.socket) as client:
            client.devices.ReportAllocator(reports(), timeout=60)

    def test_it_shows_what_there_is_and_moves(self):
        self.client("tune", "--model", "llama2-7b", "--seq-len", 1024, "--device",
                    "model:mi300x", "--lora.rank", 16, "--precision", "bf16")
        self.client(*self.host_study("--detach"))
        self.report_leak()
        page = self.browser
        page.open(f"http://{self.http}/")
        page.wait_until("document.querySelectorAll('.device').length >= 3")
        page.wait_until("document.querySelectorAll('.study circle').length >= 5", 120)
        page.wait_until("document.querySelectorAll('.device .curve').length >= 2", 60)
        page.wait_until("document.querySelectorAll('#findings li').length >= 1")
        page.wait_until("document.querySelectorAll('.study .bar').length >= 1", 60)
        shown = "document.querySelector('.device .curve').getAttribute('points')"
        time_told = "document.getElementById('state').textContent"
        curve, told = page.evaluate(shown), page.evaluate(time_told)
        page.wait_until(f"{shown} !== {curve!r}")
        page.wait_until(f"{time_told} !== {told!r}")
        trials = "document.querySelectorAll('circle').length"
        page.wait_until(f"{trials} > {page.evaluate(trials)}", 120)
        self.pictures.mkdir(exist_ok=True)
        for name, width, dark in LAYOUTS:
            page.look(width, dark)
            page.wait_until(f"window.innerWidth === {width}")
            page.evaluate("refresh()")
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), width)
            page.screenshot(self.pictures / f"{name}.png")
        self.assertEqual(page.complaints, [])
        self.stop_daemon()
        page.wait_until("document.getElementById('state').className === 'stale'")
        page.screenshot(self.pictures / "daemon-gone.png")


if __name__ == "__main__":
    StatusPage.pictures = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else "status-page")
    support.main()
