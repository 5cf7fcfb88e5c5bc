"""TCP: only with certificates of both sides, and who calls stands in the client's."""

import pathlib
import subprocess
import time
import urllib.request

import grpc

import api
import support
from api import devices

TIMEOUT = 20


class Authority:
    """A root of trust in a folder, by the openssl program."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.root = self.folder / "root.pem"
        self.run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-keyout", "root.key", "-out", "root.pem", "-days", "30", "-subj",
                 f"/CN={self.folder.name}", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        (self.folder / "index.txt").write_text("")
        (self.folder / "ca.cnf").write_text(
            "[ca]\ndefault_ca=here\n[here]\ndatabase=index.txt\ndefault_md=sha256\n"
            "default_crl_days=30\n")

    def run(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name, alternative, days="30"):
        """(certificate, key) for that subject alternative name."""
        self.run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (self.folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
        self.run("x509", "-req", "-in", f"{name}.csr", "-CA", "root.pem", "-CAkey", "root.key",
                 "-CAcreateserial", "-out", f"{name}.pem", "-days", days, "-extfile",
                 f"{name}.ext")
        return self.folder / f"{name}.pem", self.folder / f"{name}.key"

    def revoke(self, certificate, crl_folder):
        self.run("ca", "-config", "ca.cnf", "-revoke", str(certificate), "-keyfile", "root.key",
                 "-cert", "root.pem")
        self.publish(crl_folder)

    def publish(self, crl_folder):
        """The list of what is revoked, under the name that OpenSSL looks for."""
        self.run("ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem", "-keyfile", "root.key",
                 "-cert", "root.pem")
        name = subprocess.run(["openssl", "x509", "-hash", "-noout", "-in", "root.pem"],
                              cwd=self.folder, check=True, capture_output=True, text=True).stdout
        (crl_folder / f"{name.strip()}.r0").write_bytes((self.folder / "crl.pem").read_bytes())


class Served(support.Case):
    """A daemon with certificates, and alice, who is root there."""

    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder / "authority")
        self.served = {name: self.folder / f"{name}.pem"
                       for name in ("certificate", "key", "roots")}
        self.put(self.authority, *self.authority.issue("server", "DNS:localhost"))
        self.alice = self.authority.issue("alice", "URI:spiffe://site/alice")

    def put(self, roots, certificate, key):
        self.served["roots"].write_bytes(roots.root.read_bytes())
        self.served["certificate"].write_bytes(certificate.read_bytes())
        self.served["key"].write_bytes(key.read_bytes())

    def flags(self):
        return ("--tcp", "127.0.0.1:0", "--tls-certificate", str(self.served["certificate"]),
                "--tls-key", str(self.served["key"]), "--tls-roots", str(self.served["roots"]),
                "--tls-users", "spiffe://site/alice=root,bob.example=nobody")

    def start(self, *more):
        self.start_daemon(*self.flags(), "--default-role", "read", "--http", "127.0.0.1:0", *more)
        line = next(line for line in self.log.read_text().splitlines() if "serves TCP" in line)
        self.port = int(line.split("port=")[1].split()[0])


class Tls(Served):
    def code(self, identity, method="ListDevices", request=None, roots=None):
        """The status code of a call with that (certificate, key), or with none."""
        certificate, key = (file.read_bytes() for file in identity) if identity else (None, None)
        credentials = grpc.ssl_channel_credentials((roots or self.authority.root).read_bytes(),
                                                   key, certificate)
        options = (("grpc.use_local_subchannel_pool", 1),)
        with grpc.secure_channel(f"localhost:{self.port}", credentials, options) as channel:
            stub = api.devices_grpc.DevicesStub(channel)
            try:
                getattr(stub, method)(request or devices.ListDevicesRequest(), timeout=TIMEOUT)
                return "OK"
            except grpc.RpcError as error:
                return error.code().name

    def refused_metric(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=60) as answer:
            return "\nhbmtune_tls_files_refused 1\n" in answer.read().decode()

    def test_the_certificates_name_decides_what_its_holder_may(self):
        self.start()
        quiesce = devices.QuiesceRequest(devices=["host"])
        self.assertEqual(self.code(self.alice), "OK")
        self.assertEqual(self.code(self.alice, "Quiesce", quiesce), "OK")
        bob = self.authority.issue("bob", "DNS:bob.example")
        self.assertEqual(self.code(bob), "OK")
        self.assertEqual(self.code(bob, "Quiesce", quiesce), "PERMISSION_DENIED")
        stranger = self.authority.issue("stranger", "URI:spiffe://site/mallory")
        self.assertEqual(self.code(stranger), "UNAUTHENTICATED")

    def test_certificates_that_are_missing_wrong_or_expired(self):
        self.start()
        other = Authority(self.folder / "other")
        forged = other.issue("alice", "URI:spiffe://site/alice")
        expired = self.authority.issue("old", "URI:spiffe://site/alice", days="-1")
        for identity in (None, forged, expired):
            self.assertEqual(self.code(identity), "UNAVAILABLE", identity)
        plain = grpc.insecure_channel(f"localhost:{self.port}")
        with self.assertRaises(grpc.RpcError) as caught:
            api.devices_grpc.DevicesStub(plain).ListDevices(devices.ListDevicesRequest(),
                                                            timeout=TIMEOUT)
        plain.close()
        self.assertEqual(caught.exception.code().name, "UNAVAILABLE")
        self.assertEqual(self.code(self.alice), "OK")

    def test_a_revoked_certificate(self):
        crl = self.folder / "crl"
        crl.mkdir()
        self.authority.publish(crl)
        self.start("--tls-crl-directory", str(crl))
        self.assertEqual(self.code(self.alice), "OK")
        self.authority.revoke(self.alice[0], crl)
        support.wait_until(lambda: self.code(self.alice) == "UNAVAILABLE", 60, "it is let in")

    def test_new_files_are_taken_as_a_set_and_bad_ones_are_not(self):
        self.start()
        after = Authority(self.folder / "after")
        certificate, key = after.issue("server", "DNS:localhost")
        renewed = after.issue("alice", "URI:spiffe://site/alice")
        # As a slow renewal would do it: one file after the other, one of them by halves.
        self.served["key"].write_bytes(key.read_bytes())
        support.wait_until(self.refused_metric, 30, "a key of another certificate is refused")
        self.assertEqual(self.code(self.alice), "OK")
        whole = certificate.read_bytes()
        self.served["certificate"].write_bytes(whole[:len(whole) // 2])
        time.sleep(3)
        self.assertTrue(self.refused_metric())
        self.assertEqual(self.code(self.alice), "OK")
        self.put(after, certificate, key)
        support.wait_until(lambda: self.code(renewed, roots=after.root) == "OK", 60,
                           "the new set is served")
        self.assertFalse(self.refused_metric())
        self.assertEqual(self.code(self.alice, roots=after.root), "UNAVAILABLE")

    def held(self):
        """A channel of alice's that stays connected, and a call on it."""
        certificate, key = (file.read_bytes() for file in self.alice)
        credentials = grpc.ssl_channel_credentials(self.authority.root.read_bytes(), key,
                                                   certificate)
        channel = grpc.secure_channel(f"localhost:{self.port}", credentials,
                                      (("grpc.use_local_subchannel_pool", 1),))
        self.addCleanup(channel.close)
        stub = api.devices_grpc.DevicesStub(channel)

        def call():
            try:
                stub.ListDevices(devices.ListDevicesRequest(), timeout=TIMEOUT)
                return "OK"
            except grpc.RpcError as error:
                return error.code().name

        return call

    def test_old_trust_ends_with_its_connection(self):
        for seconds, ends in ((3, True), (3600, False)):
            with self.subTest(seconds=seconds):
                self.put(self.authority, *self.authority.issue("server", "DNS:localhost"))
                self.start("--tls-connection-seconds", str(seconds))
                call = self.held()
                self.assertEqual(call(), "OK")
                after = Authority(self.folder / f"after{seconds}")
                self.put(after, *after.issue("server", "DNS:localhost"))
                # A new connection is refused from the swap on; the held one lives on for a while.
                support.wait_until(lambda: self.code(self.alice) == "UNAVAILABLE", 60, "the swap")
                if ends:
                    support.wait_until(lambda: call() == "UNAVAILABLE", 60, "its connection ends")
                else:
                    time.sleep(6)
                    self.assertEqual(call(), "OK")
                self.stop_daemon()
                self.log.unlink()

    def test_it_does_not_start_with_a_bad_set(self):
        other = Authority(self.folder / "other")
        self.served["key"].write_bytes(other.issue("server", "DNS:localhost")[1].read_bytes())
        done = subprocess.run(self.daemon_command("--http", "off", *self.flags()),
                              capture_output=True, text=True, timeout=60, env=self.environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn("does not belong to the key", done.stderr.splitlines()[-1])

    def test_flags_that_do_not_go_together(self):
        for flags, said in (
                (("--tcp", "127.0.0.1:0"), "tls_certificate"),
                (("--tcp", "nonsense"), "--tcp nonsense"),
                (("--tls-users", "nonsense"), "--tls-users nonsense"),
                (("--tls-connection-seconds", "0"), "--tls-connection-seconds 0"),
                (("--tls-users", "a=no-such-user"), "no-such-user")):
            done = subprocess.run(self.daemon_command("--http", "off", *flags),
                                  capture_output=True, text=True, timeout=60,
                                  env=self.environment())
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)


class CommandLine(Served):
    """hbmtune itself over TCP."""

    def remote(self, identity=None, roots=None, host="localhost", port=None):
        certificate, key = identity or self.alice
        return ("--address", f"{host}:{port or self.port}", "--tls-ca",
                roots or self.authority.root, "--tls-cert", certificate, "--tls-key", key)

    def test_a_study_from_another_machine(self):
        self.start()
        words = ("--model", "gpt2", "--seq-len", 256, "--device", "model:mi210")
        study = self.client_json("tune", *words, "--max-trials", 2, *self.remote())
        self.assertEqual(study["device"], "model:mi210")
        self.assertIn("train_config", study)
        variables = {"HBMTUNE_SOCKET": "", "HBMTUNE_ADDRESS": f"localhost:{self.port}",
                     "HBMTUNE_TLS_CA": str(self.authority.root),
                     "HBMTUNE_TLS_CERT": str(self.alice[0]), "HBMTUNE_TLS_KEY": str(self.alice[1])}
        self.assertEqual(len(self.client_json("studies", **variables)), 1)
        # The socket is named first: whoever has both is on the node.
        variables["HBMTUNE_SOCKET"] = str(self.folder / "nobody.sock")
        self.assertIn("nobody.sock", self.sentence("studies", code=support.UNREACHABLE,
                                                   **variables))

    def test_a_connection_that_fails_names_the_file_to_look_at(self):
        self.start()
        other = Authority(self.folder / "other")
        forged = other.issue("forged", "URI:spiffe://site/alice")
        stranger = self.authority.issue("stranger", "URI:spiffe://site/mallory")
        http = self.http.rpartition(":")[2]
        for words, code, said in (
                (self.remote(roots=other.root), support.UNREACHABLE,
                 f"does not lead to {other.root}"),
                (self.remote(forged), support.UNREACHABLE, f"does not trust: {forged[0]}"),
                (self.remote(host="127.0.0.1"), support.UNREACHABLE, "of another name"),
                (self.remote(port=http), support.UNREACHABLE, "speaks no TLS"),
                (self.remote(port=1), support.UNREACHABLE, "nobody listens"),
                (self.remote(stranger), support.FAILED, "spiffe://site/mallory"),
                (("--address", f"127.0.0.1:{self.port}"), support.UNREACHABLE, "give --tls-ca")):
            with self.subTest(said=said):
                self.assertIn(said, self.sentence("devices", *words, code=code))

    def test_what_is_wrong_with_the_flags_is_said_before_a_connection(self):
        self.port = 1
        certificate, key = self.alice
        expired = self.authority.issue("old", "URI:spiffe://site/alice", days="-1")
        half = self.folder / "half.pem"
        half.write_bytes(certificate.read_bytes()[:200])
        other_key = self.authority.issue("bob", "DNS:bob.example")[1]
        gone = self.folder / "gone.pem"
        address = ("--address", "gpu7.example:9465")
        for words, said in (
                (address, "nothing goes there in the clear"),
                ((*address, "--tls-ca", self.authority.root), "--tls-cert is missing"),
                (self.remote(roots=gone), f"--tls-ca: cannot read {gone}"),
                (self.remote((half, key)), f"--tls-cert {half}: there is no whole PEM"),
                (self.remote((certificate, half)), f"--tls-key {half}: there is no whole PEM"),
                (self.remote((certificate, other_key)), f"{other_key}: it is not the key of"),
                (self.remote(expired), f"{expired[0]}: the certificate has expired"),
                (("--address", "gpu7"), "'gpu7' is not HOST:PORT"),
                ((*address, "--local"), "--address and --local name two daemons"),
                ((*address, "--socket", self.socket), "--address and --socket name two"),
                (("--tls-ca", self.authority.root), "is for --address")):
            with self.subTest(said=said):
                self.assertIn(said, self.sentence("devices", *words))

    def test_plaintext_stays_on_this_machine(self):
        for host in ("10.0.0.7", "gpu7", "127.0.0.1.example.com", "[2001:db8::1]", "0.0.0.0",
                     "127.1"):
            self.assertIn("in the clear", self.sentence("devices", "--address", f"{host}:9465"))
        for host in ("127.0.0.1", "localhost", "[::1]", "127.8.9.1"):
            self.sentence("devices", "--address", f"{host}:1", code=support.UNREACHABLE)


if __name__ == "__main__":
    support.main()
