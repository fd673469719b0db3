# SPDX-License-Identifier: Apache-2.0
"""`weft doctor` on the C++ ABI, the BLAS that is really called, and peers."""

import json
import os
import subprocess
import sys

import pytest
from weft.bench import peers
from weft.bench.systems import Tools
from weft.blas import libraries
from weft.cli import doctor as command
from weft.doctor import Fact, Page, library, pytorch


def test_a_peer_is_here_with_its_version_or_not_with_the_reason(monkeypatch):
    monkeypatch.setattr(
        peers,
        "_OTHERS",
        {
            "Open MPI": lambda: (Tools("/bin/mpicc", "/bin/mpirun"), "4.1.4"),
            "MPICH": lambda: (Tools(missing="no mpicc of it found"), None),
        },
    )
    said = {"gloo": True, "nccl": True, "nccl_version": "2.29.2", "mpi": False, "ucc": False}
    torch = Page("PyTorch", [Fact("torch.distributed", "", said)])
    texts = {fact.name: fact.text for fact in library.peers_page(torch).facts}
    assert texts == {
        "gloo": "yes, in torch",
        "NCCL": "yes, 2.29.2, in torch",
        "MPI in torch": "no: not in this build of torch",
        "UCC": "no: not in this build of torch",
        "Open MPI": "yes, 4.1.4, /bin/mpirun",
        "MPICH": "no: no mpicc of it found",
    }


def test_without_torch_no_backend_of_it_is_here(monkeypatch):
    monkeypatch.setattr(peers, "_OTHERS", {})
    page = library.peers_page(Page("PyTorch", [Fact("version", "not installed")]))
    assert all(fact.data["here"] is False for fact in page.facts)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("mpirun.openmpi (OpenRTE) 4.1.4\n", "4.1.4"),
        ("mpirun (Open MPI) 5.0.7\n", "5.0.7"),
        ("HYDRA build details:\n    Version:           4.0.2\n", "4.0.2"),
        ("?", None),
    ],
)
def test_the_version_of_an_mpi_is_what_its_launcher_says(said, version, monkeypatch):
    monkeypatch.setattr(peers, "output", lambda command: said)
    monkeypatch.setattr(peers.Mpi, "find", lambda self: Tools("mpicc", "mpirun"))
    assert peers._mpi(peers.OPENMPI)[1] == version


def test_the_newest_symbols_of_a_c_plus_plus_library_are_by_number(tmp_path):
    file = tmp_path / "libstdc++.so.6"
    file.write_bytes(b"\0GLIBCXX_3.4.9\0GLIBCXX_3.4.30\0GLIBCXX_3.4.29\0GLIBCXX_TUNABLES\0")
    assert pytorch._newest(str(file)) == "GLIBCXX_3.4.30"
    file.write_bytes(b"")
    assert pytorch._newest(str(file)) is None
    assert pytorch._newest("/no/such/file") is None


def pytorch_page(**environment):
    done = subprocess.run(
        [sys.executable, "-c", "import weft.doctor.pytorch as p; p.tell()"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=True,
    )
    return {fact["name"]: fact for fact in json.loads(done.stdout.splitlines()[-1])}


def test_the_abi_of_torch_is_told():
    torch = pytest.importorskip("torch")
    fact = pytorch_page()["C++ ABI"]
    assert fact["data"]["cxx11"] is torch.compiled_with_cxx11_abi()
    assert f"_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}" in fact["text"]
    assert fact["data"]["offers"].startswith("GLIBCXX_3.")


def test_a_library_that_serves_torch_is_named_as_weft_blas_lists_it():
    pytest.importorskip("torch")
    usable = [one for one in libraries.libraries() if libraries.refusal(one) is None]
    if not usable:
        pytest.skip("no BLAS library is installed")
    fact = pytorch_page(**libraries.environment(usable[0]))["BLAS"]
    assert (fact["data"]["name"], fact["data"]["library"]) == (usable[0].name, usable[0].file)
    assert f"({usable[0].name}" in fact["text"]


def test_help_has_examples(capsys):
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "examples:\n  weft doctor" in capsys.readouterr().out
