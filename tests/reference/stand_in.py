"""Builds the CUDA stand-in and restarts the calling script with it loaded."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import tempfile

LOADED = "HBMTUNE_STAND_IN"


def build(directory):
    """Compiles cuda_stand_in.c against the headers that PyTorch's wheel depends on."""
    source = pathlib.Path(__file__).with_name("cuda_stand_in.c")
    include = pathlib.Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "include"
    library = pathlib.Path(directory) / "libcuda_stand_in.so"
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-Wall", "-Werror",
                    "-Wl,-soname,libcuda.so.1", f"-I{include}", str(source), "-o", str(library)],
                   check=True)
    return library


def ensure():
    """Returns at once when the stand-in is loaded; else runs this script again with it."""
    if os.environ.get(LOADED):
        return
    with tempfile.TemporaryDirectory() as directory:
        environment = dict(os.environ, LD_PRELOAD=str(build(directory)), CUDA_VISIBLE_DEVICES="0",
                           CUBLAS_WORKSPACE_CONFIG=":0:0", CUBLASLT_WORKSPACE_SIZE="0",
                           **{LOADED: "1"})
        environment.pop("PYTORCH_CUDA_ALLOC_CONF", None)
        sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
