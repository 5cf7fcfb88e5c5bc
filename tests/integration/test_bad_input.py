"""Bad input gets one clear sentence, the right exit code, and nothing is stored."""

import json

import support
from support import NOTHING_FITS, USAGE


class BadInput(support.Case):
    """Each test also checks that the daemon lives and that no study was made."""

    def setUp(self):
        super().setUp()
        self.start_daemon()

    def tearDown(self):
        self.assertIsNone(self.daemon.poll(), "the daemon died")
        self.assertEqual(self.client_json("studies"), [])

    def tune(self, *words, model=None):
        """The sentence that a study of a modelled device is refused with."""
        model = self.model() if model is None else model
        return self.sentence("tune", "--model", model, "--seq-len", 64, "--device",
                             "model:mi210", *words)

    def assert_names(self, sentence, *parts):
        for part in parts:
            self.assertIn(part, sentence)

    # The model.

    def test_no_such_file(self):
        self.model()
        self.assertEqual(self.tune(model="./tiny/confg.json"),
                         "no such file: ./tiny/confg.json (did you mean config.json?)")

    def test_not_json(self):
        path = self.folder / "config.json"
        path.write_text("{hidden_size: 4")
        self.assert_names(self.tune(model=path), "JSON")

    def test_no_hidden_size(self):
        self.assert_names(self.tune(model=self.model(hidden_size=None)), "hidden_size")

    def test_heads_that_do_not_divide(self):
        self.assert_names(self.tune(model=self.model(num_attention_heads=3)), "128", "3", "heads")
        self.assert_names(self.tune(model=self.model(num_key_value_heads=3)), "3", "heads")

    def test_unsupported_architecture_lists_the_supported(self):
        path = self.model(model_type="mamba", architectures=["MambaForCausalLM"])
        self.assert_names(self.tune(model=path), "mamba", "llama", "mistral", "qwen2", "falcon",
                          "gpt2")

    def test_a_value_of_the_wrong_type(self):
        self.assert_names(self.tune(model=self.model(hidden_size="wide")), "hidden_size")
        self.assert_names(self.tune(model=self.model(num_hidden_layers=0)), "num_hidden_layers")

    def test_a_layout_of_sequences_that_the_framework_has_no_model_of(self):
        words = ("--framework", "hf-sdpa", "--sequences.layout", "padded")
        self.assertEqual(self.tune(*words), "sequences.layout padded is not modelled for hf-sdpa: "
                                            "fixed is, and framework fused models it")
        self.assert_names(self.tune("--sequences.order", "drawn"), "--sequences.layout padded")

    def test_unknown_preset_suggests_the_nearest(self):
        self.assert_names(self.tune(model="llama2-13"), "llama2-13", "did you mean llama2-13b?")

    def test_a_sequence_longer_than_the_models_positions(self):
        self.assert_names(self.tune("--seq-len", 513), "513", "512")

    # The workload.

    def test_unsupported_optimizer_lists_the_supported(self):
        self.assertEqual(self.tune("--optimizer", "lion"),
                         "--optimizer: 'lion' is not adamw, adamw-8bit or sgd")

    def test_unsupported_framework_lists_the_supported(self):
        self.assert_names(self.tune("--framework", "fsdp"), "'fsdp'", "fused", "hf-sdpa",
                          "hf-sdpa+deepspeed")

    def test_a_tunable_that_the_framework_does_not_have(self):
        self.assert_names(self.tune("--framework", "hf-sdpa", "--zero.stage", 2), "hf-sdpa",
                          "zero.stage")

    def test_a_global_batch_that_does_not_divide(self):
        self.assert_names(self.tune("--global-batch", 7, "--world-size", 2), "7", "2")

    def test_a_global_batch_that_no_micro_batch_divides(self):
        sentence = self.tune("--global-batch", 7, "--pin", "micro-batch=2")
        self.assert_names(sentence, "global_batch 7", "micro_batch", "pins")

    # Where.

    def test_unknown_device_suggests_the_nearest(self):
        self.assert_names(self.sentence("tune", "--model", "llama2-7b", "--device", "model:mi21"),
                          "model:mi21", "did you mean model:mi210?")

    def test_sizes_and_times(self):
        self.assertEqual(self.tune("--budget", "0"),
                         "--budget: '0' is not a time over 0 (like 60s, 5m or 1h)")
        self.assertEqual(self.tune("--memory", "lots"),
                         "--memory: 'lots' is not a size over 0 (like 512MiB or 1.5GiB)")
        self.assert_names(self.tune("--max-trials", -1), "--max-trials")

    def test_studies_that_do_not_exist(self):
        for words in (("show", 9), ("watch", 9), ("cancel", 9), ("recommend", 9),
                      ("export", 9, "--format", "env"), ("estimate", "--from", 9)):
            self.assert_names(self.sentence(*words), "9")
        self.assert_names(self.sentence("show", "seven"), "seven")

    def test_a_precision_beside_a_dtype_that_it_excludes(self):
        self.assert_names(self.tune("--precision", "bf16", "--param-dtype", "fp32"),
                          "param_dtype", "fp32")

    def test_estimates_are_checked_alike(self):
        words = ("estimate", "--model", self.model(), "--seq-len", 64)
        self.assert_names(self.sentence(*words, "--device", "mi210"), "model:mi210")
        words = (*words, "--device", "model:mi210")
        self.assert_names(self.sentence(*words, "--framework", "hf-sdpa", "--zero.stage", 2),
                          "hf-sdpa", "zero.stage")
        self.assert_names(self.sentence(*words, "--micro-batch", 0), "micro_batch")
        self.assert_names(self.sentence(*words, "--global-batch", 7, "--micro-batch", 2), "7", "2")

    def test_a_raw_request_for_a_budget_of_0_is_refused_too(self):
        """The client stops it; other clients must not get past the daemon either."""
        self.assert_names(self.sentence("tune", "--model", self.model(), "--device", "host",
                                        "--budget", "1e-400s", code=USAGE), "--budget")


class MemoryTooSmall(support.Case):
    """That is no mistake of the request: the study is made, and ends with exit code 3."""

    def test_says_the_least_that_would_fit_and_with_which_config(self):
        self.start_daemon()
        words = ("tune", "--model", self.model(), "--seq-len", 64, "--device", "model:mi210",
                 "--memory", "1MiB", "--ceiling", "1MiB")
        text = self.client(*words, code=NOTHING_FITS).stdout
        self.assertIn("nothing fits in 1.00 MiB: the least is ", text)
        self.assertIn("micro-batch 1", text)
        self.assertIn("nothing fits in 1.00 MiB: the least is ",
                      self.client(*words, code=NOTHING_FITS).stderr)
        answer = json.loads(self.client(*words, "--output", "json", code=NOTHING_FITS).stdout)
        self.assertGreater(answer["shortfall"]["estimate"]["peak_used_bytes"], 1 << 20)
        self.assertEqual(answer["shortfall"]["train_config"]["micro_batch"], 1)

    def test_real_probes_say_so_too(self):
        self.start_daemon()
        text = self.client(*self.host_study("--memory", "2MiB"), code=NOTHING_FITS).stdout
        self.assertIn("nothing fits in 2.00 MiB: the least is ", text)


if __name__ == "__main__":
    support.main()
