"""The daemon's API for Python, from the proto files alone: protoc and its gRPC plugin write the
modules into a temporary folder when this is imported. For tests and as an example."""

import atexit
import importlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import grpc

PROTO = pathlib.Path(__file__).parents[2] / "proto"


def _generate():
    folder = tempfile.mkdtemp(prefix="hbmtune-api-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    files = sorted([*PROTO.glob("hbmtune/v1/*.proto"), *PROTO.glob("google/rpc/*.proto")])
    subprocess.run(["protoc", f"--proto_path={PROTO}", f"--python_out={folder}",
                    f"--grpc_python_out={folder}",
                    f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}",
                    *files], check=True)
    sys.path.insert(0, folder)
    # Debian's protobuf is a package `google` of its own: let it find google.rpc here too.
    import google
    google.__path__.append(f"{folder}/google")


_generate()


def module(name):
    return importlib.import_module(name)


tuning = module("hbmtune.v1.tuning_pb2")
devices = module("hbmtune.v1.devices_pb2")
config = module("hbmtune.v1.config_pb2")
result = module("hbmtune.v1.result_pb2")
tuning_grpc = module("hbmtune.v1.tuning_pb2_grpc")
devices_grpc = module("hbmtune.v1.devices_pb2_grpc")


class Client:
    """Both services of the daemon at a Unix socket."""

    def __init__(self, socket):
        # Each client has a channel of its own: a shared one would bring along its backoff.
        options = (("grpc.use_local_subchannel_pool", 1),)
        self.channel = grpc.insecure_channel(f"unix:{socket}", options=options)
        self.tuning = tuning_grpc.TuningStub(self.channel)
        self.devices = devices_grpc.DevicesStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.channel.close()
