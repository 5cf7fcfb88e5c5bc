"""A client in Python, written from the proto files and proto/README.md alone: studies, trials run
by the client itself, leases, memory, errors, paging, reflection and health."""

import json
import threading
import time
import uuid

import grpc
from google.protobuf import descriptor_pb2

import api
import support
from api import devices, result, tuning

HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
TIMEOUT = 120


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out + bytes([number]))


def field(number, data):
    """A length-delimited field on the wire: enough for two protocols that Debian ships no Python
    package for (python3-grpcio has neither grpc_health nor grpc_reflection)."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def fields(data):
    """(number, value) of each field of a message."""
    def take():
        nonlocal data
        number = shift = 0
        while True:
            byte, data = data[0], data[1:]
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while data:
        tag = take()
        if tag & 7 == 0:
            yield tag >> 3, take()
        elif tag & 7 == 2:
            size = take()
            yield tag >> 3, data[:size]
            data = data[size:]
        else:
            raise ValueError(f"wire type {tag & 7}")


def details(error):
    """The google.rpc details of an error, by their short names."""
    status = api.module("google.rpc.status_pb2").Status()
    kinds = api.module("google.rpc.error_details_pb2")
    trailers = dict(error.trailing_metadata())
    status.ParseFromString(trailers["grpc-status-details-bin"])
    found = {}
    for packed in status.details:
        name = packed.type_url.rsplit(".", 1)[1]
        message = getattr(kinds, name)()
        packed.Unpack(message)
        found[name] = message
    return found


class PythonClient(support.Case):
    def setUp(self):
        super().setUp()
        self.start_daemon()
        self.api = api.Client(self.socket)
        self.addCleanup(self.api.channel.close)

    def request(self, **changes):
        request = tuning.CreateStudyRequest(device="model:mi210", max_trials=8, **changes)
        request.model.preset = "gpt2"
        request.workload.seq_len = 512
        return request

    def ended(self, study):
        states = []
        for event in self.api.tuning.WatchStudy(tuning.WatchStudyRequest(name=study.name),
                                                timeout=TIMEOUT):
            if event.HasField("study"):
                states.append(event.study)
        return states[-1]

    def fails(self, code, call, *words, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            call(*words, timeout=TIMEOUT, **options)
        self.assertEqual(caught.exception.code(), code, caught.exception)
        return caught.exception

    # Studies.

    def test_a_study_from_its_creation_to_the_recommended_config(self):
        request = self.request(client_request_id=str(uuid.uuid4()))
        study = self.api.tuning.CreateStudy(request, timeout=TIMEOUT)
        again = self.api.tuning.CreateStudy(request, timeout=TIMEOUT)
        self.assertEqual(again.name, study.name)
        last = self.ended(study)
        self.assertEqual(last.state, tuning.STUDY_STATE_SUCCEEDED, last.message)
        best = self.api.tuning.Recommend(tuning.RecommendRequest(study=study.name),
                                         timeout=TIMEOUT)
        self.assertEqual(best.best.evidence, result.EVIDENCE_PREDICTED)
        self.assertGreaterEqual(best.best.train_config.micro_batch, 1)
        answer = self.api.tuning.Export(tuning.ExportRequest(
            study=study.name, format=tuning.EXPORT_FORMAT_HBMTUNE), timeout=TIMEOUT)
        exported = json.loads(answer.text)["train_config"]
        self.assertEqual(exported["micro_batch"], best.best.train_config.micro_batch)

    def test_pages_of_trials_are_the_whole_list_once(self):
        study = self.api.tuning.CreateStudy(self.request(), timeout=TIMEOUT)
        last = self.ended(study)
        numbers, token, pages = [], "", 0
        while True:
            page = self.api.tuning.ListTrials(tuning.ListTrialsRequest(
                parent=study.name, page_size=3, page_token=token), timeout=TIMEOUT)
            numbers += [trial.name for trial in page.trials]
            pages += 1
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertEqual(len(numbers), last.progress.finished_trials)
        self.assertEqual(pages, -(-len(numbers) // 3))

    def test_a_prober_in_python_runs_the_trials(self):
        request = self.request(client_probes=True, budget_seconds=600)
        request.device = "host"
        request.ceiling.capacity_bytes = 8 << 30
        request.max_trials = 3
        study = self.api.tuning.CreateStudy(request, timeout=TIMEOUT)
        done = 0
        while True:
            ask = tuning.SuggestTrialRequest(study=study.name, prober="python")
            try:
                answer = self.api.tuning.SuggestTrial(ask, timeout=TIMEOUT)
            except grpc.RpcError as error:
                self.assertEqual(details(error)["ErrorInfo"].reason, "NOT_RUNNING")
                if done:
                    break
                time.sleep(0.1)  # it has not begun yet
                continue
            if answer.over:
                break
            if not answer.HasField("trial"):
                time.sleep(answer.retry_seconds)
                continue
            progress = tuning.ReportProgressRequest(prober="python")
            progress.progress.trial = answer.trial.name
            self.assertFalse(self.api.tuning.ReportProgress(progress, timeout=TIMEOUT).stop)
            complete = tuning.CompleteTrialRequest(trial=answer.trial.name, prober="python")
            complete.measurement.outcome = result.OUTCOME_OK
            complete.measurement.steps = 2
            complete.measurement.step_seconds = 1
            complete.measurement.tokens_per_second = 1000 + done
            complete.measurement.peak_reserved_bytes = 1 << 30
            self.api.tuning.CompleteTrial(complete, timeout=TIMEOUT)
            # Answers are kept, but never beyond the next trial: each is faster than the one before.
            for _ in range(2):
                known = self.api.tuning.Recommend(tuning.RecommendRequest(study=study.name),
                                                  timeout=TIMEOUT)
                self.assertEqual(known.best.tokens_per_second, 1000 + done)
            done += 1
        self.assertEqual(done, 3)
        self.assertEqual(self.ended(study).progress.finished_trials, 3)

    # Errors.

    def test_a_wrong_field_is_named(self):
        request = self.request()
        request.workload.seq_len = -1
        error = self.fails(grpc.StatusCode.INVALID_ARGUMENT, self.api.tuning.CreateStudy, request)
        violations = details(error)["BadRequest"].field_violations
        self.assertTrue(violations and violations[0].field.startswith("workload"), violations)

    def test_reasons_are_for_programs(self):
        error = self.fails(grpc.StatusCode.NOT_FOUND, self.api.tuning.GetStudy,
                           tuning.GetStudyRequest(name="studies/77"))
        info = details(error)["ErrorInfo"]
        self.assertEqual((info.domain, info.reason), ("hbmtune", "UNKNOWN_STUDY"))
        error = self.fails(grpc.StatusCode.NOT_FOUND, self.api.devices.GetDevice,
                           devices.GetDeviceRequest(name="model:mi201"))
        info = details(error)["ErrorInfo"]
        self.assertEqual((info.reason, info.metadata["nearest"]),
                         ("UNKNOWN_DEVICE", "model:mi210"))

    # Devices.

    def test_a_lease_comes_and_goes(self):
        ask = devices.AcquireLeaseRequest(job_id="42", devices=["host"], remaining_seconds=60)
        lease = self.api.devices.AcquireLease(ask, timeout=TIMEOUT)
        self.assertEqual(lease.state, devices.LEASE_STATE_GRANTED)
        self.assertTrue(lease.durable)
        host = self.api.devices.GetDevice(devices.GetDeviceRequest(name="host"), timeout=TIMEOUT)
        self.assertEqual((host.leased_by, host.state), ("42", devices.DEVICE_STATE_LEASED))
        other = devices.AcquireLeaseRequest(job_id="43", devices=["host"])
        self.fails(grpc.StatusCode.FAILED_PRECONDITION, self.api.devices.AcquireLease, other)
        self.api.devices.ReleaseLease(devices.ReleaseLeaseRequest(job_id="42"), timeout=TIMEOUT)
        self.assertEqual(self.api.devices.AcquireLease(other, timeout=TIMEOUT).state,
                         devices.LEASE_STATE_GRANTED)

    def test_a_leak_is_found_and_watched(self):
        seen = []
        stream = self.api.devices.WatchMemory(devices.WatchMemoryRequest(
            device="host", period_seconds=0.1), timeout=TIMEOUT)
        watcher = threading.Thread(target=self.collect_findings, args=(stream, seen))
        watcher.start()

        def reports():
            for step in range(400):
                live = (1 << 30) + step * (2 << 20)
                yield devices.ReportAllocatorRequest(
                    device="host", job_id="7", report=devices.AllocatorReport(
                        step=step, allocated_bytes=live, active_bytes=live,
                        reserved_bytes=live + (64 << 20)))

        answer = self.api.devices.ReportAllocator(reports(), timeout=TIMEOUT)
        self.assertEqual(answer.reports, 400)
        self.assertIn(devices.FINDING_KIND_LEAK, [found.kind for found in answer.findings])
        watcher.join(timeout=TIMEOUT)
        self.assertEqual(seen, ["7"])

    @staticmethod
    def collect_findings(stream, seen):
        for sample in stream:
            for found in sample.findings:
                if found.finding.kind == devices.FINDING_KIND_LEAK:
                    seen.append(found.job_id)
                    stream.cancel()
                    return

    # What every gRPC server should answer.

    def test_health(self):
        check = self.api.channel.unary_unary(HEALTH)
        serving = 1
        self.assertEqual(list(fields(check(b"", timeout=TIMEOUT))), [(1, serving)])

    def test_reflection_gives_back_the_proto_files(self):
        call = self.api.channel.stream_stream(REFLECTION)

        def ask(*requests):
            return [dict(fields(answer)) for answer in call(iter(requests), timeout=TIMEOUT)]

        services_response, file_response = 6, 4
        (answer,) = ask(field(7, b"*"))
        names = {dict(fields(service))[1].decode()
                 for number, service in fields(answer[services_response]) if number == 1}
        self.assertLessEqual({"hbmtune.v1.Tuning", "hbmtune.v1.Devices",
                              "grpc.health.v1.Health"}, names)
        (answer,) = ask(field(4, b"hbmtune.v1.Tuning"))
        files = [descriptor_pb2.FileDescriptorProto.FromString(file)
                 for number, file in fields(answer[file_response]) if number == 1]
        methods = {method.name for file in files for service in file.service
                   if service.name == "Tuning" for method in service.method}
        ours = tuning.DESCRIPTOR.services_by_name["Tuning"].methods_by_name
        self.assertEqual(methods, set(ours))


if __name__ == "__main__":
    support.main()
