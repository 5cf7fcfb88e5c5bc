#!/usr/bin/env python3
"""What `cmake --install` puts in a folder works from there: the programs find each other."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(os.environ["HBMTUNE_BIN"]).parent
PROGRAMS = ("hbmtune", "hbmtuned", "hbmtune-probe", "hbmtune-smi")

# A step takes some milliseconds.
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
}


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="hbmtune-install-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.prefix = cls.folder / "opt"
        cls.install("--prefix", cls.prefix)

    @staticmethod
    def install(*words, **variables):
        done = subprocess.run(["cmake", "--install", BUILD, *words], capture_output=True,
                              text=True, check=False, env=os.environ | variables)
        assert done.returncode == 0, done.stdout + done.stderr

    def run_installed(self, *words):
        """Of what the environment says nothing stays that could lead to the build tree."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        environment = {"HOME": str(home), "PATH": "/usr/bin:/bin",
                       "XDG_RUNTIME_DIR": str(home), "XDG_STATE_HOME": str(home)}
        return subprocess.run([self.prefix / "bin/hbmtune", *map(str, words)], cwd=home,
                              capture_output=True, text=True, timeout=240, check=False,
                              env=environment)

    def test_programs_and_what_belongs_to_them_are_there(self):
        for name in (*(f"bin/{program}" for program in PROGRAMS),
                     "share/hbmtune/profiles/mi210.toml", "etc/hbmtune/hbmtuned.toml",
                     "share/hbmtune/proto/hbmtune/v1/tuning.proto",
                     "share/hbmtune/proto/google/rpc/error_details.proto",
                     "share/bash-completion/completions/hbmtune",
                     "share/zsh/site-functions/_hbmtune", "share/doc/hbmtune/LICENSE",
                     "lib/systemd/system/hbmtune-probe.socket", "lib/sysusers.d/hbmtune.conf",
                     "lib/tmpfiles.d/hbmtune.conf"):
            self.assertGreater((self.prefix / name).stat().st_size, 0, name)
        script = (self.prefix / "share/bash-completion/completions/hbmtune").read_text()
        self.assertIn("complete -F _hbmtune hbmtune", script)

    def test_an_estimate_and_a_study_of_real_probes(self):
        model = self.folder / "config.json"
        model.write_text(json.dumps(MODEL))
        estimate = self.run_installed("estimate", "--local", "--model", "gpt2", "--seq-len", 64,
                                      "--device", "model:mi210", "--output", "json")
        self.assertEqual(estimate.returncode, 0, estimate.stderr)
        self.assertTrue(json.loads(estimate.stdout)["fits"])
        study = self.run_installed("tune", "--local", "--model", model, "--seq-len", 16,
                                   "--device", "host", "--memory", "64MiB", "--max-trials", 2,
                                   "--output", "json")
        self.assertEqual(study.returncode, 0, study.stderr)
        self.assertEqual(json.loads(study.stdout)["evidence"], "MEASURED")

    def test_units_name_the_programs_of_this_prefix(self):
        units = self.prefix / "lib/systemd/system"
        self.assertIn(f"ExecStart={self.prefix}/bin/hbmtuned --config "
                      f"{self.prefix}/etc/hbmtune/hbmtuned.toml\n",
                      (units / "hbmtuned.service").read_text())
        self.assertIn(f"ExecStart={self.prefix}/bin/hbmtune-probe\n",
                      (units / "hbmtune-probe@.service").read_text())

    def test_a_package_has_its_settings_in_etc_and_an_admins_stay(self):
        root = self.folder / "root"
        settings = root / "etc/hbmtune/hbmtuned.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("# mine\n")
        self.install("--prefix", "/usr", DESTDIR=str(root))
        self.assertEqual(settings.read_text(), "# mine\n")
        self.assertIn("ExecStart=/usr/bin/hbmtuned --config /etc/hbmtune/hbmtuned.toml\n",
                      (root / "usr/lib/systemd/system/hbmtuned.service").read_text())
        self.assertTrue((root / "usr/bin/hbmtune-smi").exists())
        self.assertFalse((root / "usr/etc").exists())


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
