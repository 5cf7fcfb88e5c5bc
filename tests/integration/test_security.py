"""Who may call what, and clients that mean harm: the daemon stays up and serves the others."""

import json
import os
import pathlib
import resource
import socket
import subprocess
import sys

import grpc

import api
import support
from api import devices, tuning

TIMEOUT = 120

# The whole table once more, by hand: a change of a method's role has to be made twice.
READ, TUNE, ADMIN = 1, 2, 3
ROLES = {
    "Tuning": {
        "CreateStudy": TUNE, "GetStudy": READ, "ListStudies": READ, "WatchStudy": READ,
        "CancelStudy": TUNE, "ListTrials": READ, "SuggestTrial": TUNE, "ReportProgress": TUNE,
        "CompleteTrial": TUNE, "Recommend": READ, "Estimate": READ, "Export": READ,
        "Sweep": READ, "Verify": READ,
    },
    "Devices": {
        "ListDevices": READ, "GetDevice": READ, "AcquireLease": TUNE, "WaitLease": TUNE,
        "RenewLease": TUNE, "ReleaseLease": TUNE, "Quiesce": ADMIN, "Resume": ADMIN,
        "ReportAllocator": TUNE, "WatchMemory": READ, "ListMemoryMinutes": READ,
        "ListFindings": READ, "Calibrate": ADMIN,
    },
}
NOBODY = 65534


def call_everything(path):
    """The status code of every method of both services, called with an empty request."""
    codes = {}
    with api.Client(path) as client:
        for module in (tuning, devices):
            for service in module.DESCRIPTOR.services_by_name.values():
                stub = client.tuning if service.name == "Tuning" else client.devices
                for method in service.methods:
                    request = getattr(module, method.input_type.name)()
                    if method.name == "ReportAllocator":
                        request = iter(())
                    try:
                        answer = getattr(stub, method.name)(request, timeout=TIMEOUT)
                        if hasattr(answer, "__next__"):  # a stream
                            next(answer)
                        code = "OK"
                    except grpc.RpcError as error:
                        code = error.code().name
                    codes[f"{service.name}.{method.name}"] = code
    return codes


class Table(support.Case):
    def walk(self, default_role, may):
        """As nobody, who is in no group, if we are root; else as ourselves, who are an admin."""
        self.folder.chmod(0o755)
        self.start_daemon("--default-role", default_role, "--socket-mode", str(0o666))
        command = [sys.executable, __file__, "--call-everything", str(self.socket)]
        other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if may < ADMIN else {}
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, **other,
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"})
        self.assertEqual(done.returncode, 0, done.stderr)
        codes = json.loads(done.stdout)
        expected = {f"{service}.{method}": role for service, methods in ROLES.items()
                    for method, role in methods.items()}
        self.assertEqual(set(codes), set(expected), "a method is missing in the table above")
        for method, role in expected.items():
            self.assertEqual(codes[method] == "PERMISSION_DENIED", role > may,
                             f"{method} by {default_role}: {codes[method]}")
            self.assertNotIn(codes[method], ("UNIMPLEMENTED", "INTERNAL", "UNKNOWN"), method)

    def test_an_admin_may_call_everything(self):
        self.walk("none", ADMIN)

    def test_each_role_may_call_what_the_table_says_and_nothing_else(self):
        if os.geteuid() != 0:  # we cannot become anybody else: an admin then
            return self.walk("read", ADMIN)
        for role, may in (("none", 0), ("read", READ), ("tune", TUNE)):
            with self.subTest(role=role):
                self.walk(role, may)
                self.stop_daemon()
        return None


def ask_often(path, times):
    """What each of so many requests ends with: OK, or its code and the seconds to wait."""
    ends = []
    with api.Client(path) as client:
        for _ in range(times):
            try:
                client.devices.GetDevice(devices.GetDeviceRequest(name="host"), timeout=TIMEOUT)
                ends.append(["OK", 0])
            except grpc.RpcError as error:
                details = api.module("google.rpc.status_pb2").Status.FromString(
                    dict(error.trailing_metadata())["grpc-status-details-bin"])
                retry = api.module("google.rpc.error_details_pb2").RetryInfo()
                waits = [retry.retry_delay.ToNanoseconds() / 1e9 for detail in details.details
                         if detail.Unpack(retry)]
                ends.append([error.code().name, waits[0] if waits else None])
    return ends


class Rate(support.Case):
    def test_who_asks_too_often_is_told_when_to_ask_again(self):
        self.folder.chmod(0o755)
        self.start_daemon("--max-requests-per-user", "1", "--socket-mode", str(0o666))
        self.assertEqual({code for code, _ in ask_often(self.socket, 20)}, {"OK"}, "an admin")
        if os.geteuid() != 0:
            return
        command = [sys.executable, __file__, "--ask-often", str(self.socket)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, user=NOBODY,
                              group=NOBODY, extra_groups=[],
                              env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HOME": "/"})
        self.assertEqual(done.returncode, 0, done.stderr)
        ends = json.loads(done.stdout)
        self.assertEqual([code for code, _ in ends[:2]], ["OK", "OK"])
        refused = [wait for code, wait in ends if code == "RESOURCE_EXHAUSTED"]
        self.assertGreater(len(refused), 5, ends)
        for wait in refused:
            self.assertTrue(0 < wait <= 1, ends)


class Abuse(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()

    def tearDown(self):
        """Whatever was done to it, it serves and leaves as it should."""
        self.assertIsNone(self.daemon.poll(), self.log.read_text()[-2000:])
        with api.Client(self.socket) as client:
            listed = client.devices.ListDevices(devices.ListDevicesRequest(), timeout=TIMEOUT,
                                                wait_for_ready=True)
            self.assertTrue(listed.devices)
        self.assertEqual(self.stop_daemon(), 0)

    def raw(self):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60)
        connection.connect(str(self.socket))
        return connection

    def call(self, name, data):
        with api.Client(self.socket) as client:
            call = client.channel.unary_unary(f"/hbmtune.v1.{name}")
            with self.assertRaises(grpc.RpcError) as caught:
                call(data, timeout=TIMEOUT, wait_for_ready=True)
            return caught.exception.code()

    def test_an_oversize_message(self):
        data = b"\x0a\x84\x80\xc0\x02" + b"x" * (5 << 20)
        self.assertEqual(self.call("Tuning/CreateStudy", data),
                         grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_bytes_that_are_no_message(self):
        for data in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x12\x05abc", os.urandom(5000)):
            code = self.call("Tuning/CreateStudy", data)
            # gRPC 1.51's callback API answers UNIMPLEMENTED to what it cannot parse, as it does
            # where there is no handler; newer ones INTERNAL.
            self.assertIn(code, (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL), code)

    def test_a_method_that_does_not_exist(self):
        self.assertEqual(self.call("Tuning/DropDatabase", b""), grpc.StatusCode.UNIMPLEMENTED)

    def test_connections_that_speak_something_else(self):
        for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096),
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 4096,
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00" * 1000):
            with self.raw() as connection:
                try:
                    connection.sendall(data)
                except BrokenPipeError:
                    pass

    def test_ten_thousand_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 12_000), hard))
        held, refused = [], 0
        try:
            # As many at once as we may hold; those over the cap are closed by the daemon, and
            # make room for others.
            for _ in range(10_000):
                try:
                    held.append(self.raw())
                except OSError:
                    refused += 1
                if len(held) > 900:
                    for connection in held[:300]:
                        connection.close()
                    del held[:300]
            self.assertLess(refused, 10_000)
            metrics = len(os.listdir(f"/proc/{self.daemon.pid}/fd"))
            self.assertLess(metrics, 2 * 256 + 200, "descriptors of one user's connections")
        finally:
            for connection in held:
                connection.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def memory(self):
        status = pathlib.Path(f"/proc/{self.daemon.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def test_calls_of_one_connection_have_a_most(self):
        request = devices.WatchMemoryRequest(device="host", period_seconds=3600)
        with api.Client(self.socket) as client:
            streams = [client.devices.WatchMemory(request) for _ in range(1024)]
            for stream in streams:
                self.assertEqual(next(stream).device, "host")
            late = client.devices.WatchMemory(request, timeout=3)
            with self.assertRaises(grpc.RpcError) as caught:
                next(late)
            self.assertEqual(caught.exception.code().name, "DEADLINE_EXCEEDED")
            streams[0].cancel()
            self.assertEqual(next(client.devices.WatchMemory(request)).device, "host")
            with api.Client(self.socket) as other:
                other.devices.ListDevices(devices.ListDevicesRequest(), timeout=TIMEOUT)
            for stream in streams:
                stream.cancel()

    def test_a_client_that_never_reads(self):
        """Streams at 10 Hz that nobody reads, and a study's events: nothing piles up."""
        with api.Client(self.socket) as lazy, api.Client(self.socket) as busy:
            streams = [lazy.devices.WatchMemory(devices.WatchMemoryRequest(
                device="host", period_seconds=0.1)) for _ in range(50)]
            before = None
            for number in range(12):
                request = tuning.CreateStudyRequest(device="model:mi210", max_trials=8)
                request.model.preset = "gpt2"
                request.workload.seq_len = 512
                request.seed = number
                study = busy.tuning.CreateStudy(request, timeout=TIMEOUT)
                streams.append(lazy.tuning.WatchStudy(
                    tuning.WatchStudyRequest(name=study.name)))
                events = list(busy.tuning.WatchStudy(
                    tuning.WatchStudyRequest(name=study.name), timeout=TIMEOUT))
                self.assertEqual(events[-1].study.state, tuning.STUDY_STATE_SUCCEEDED)
                if number == 3:
                    before = self.memory()
            self.assertLess(self.memory(), before + (64 << 20))
            for stream in streams:
                stream.cancel()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--call-everything"]:
        print(json.dumps(call_everything(sys.argv[2])))
    elif sys.argv[1:2] == ["--ask-often"]:
        print(json.dumps(ask_often(sys.argv[2], 40)))
    else:
        support.main()
