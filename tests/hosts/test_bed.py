# SPDX-License-Identifier: Apache-2.0
"""The hosts that other tests run on: each is a host, and nothing of it is left."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading

import pytest
import waiting
from weft.bench.bed import Bed, Unavailable
from weft.bench.bed import bed as bed_module

PYTHON = [sys.executable, "-I", "-S", "-c"]
MIB = 1 << 20

# Takes all that one peer sends, answers each piece, and says how much it was.
SERVE = """
    import socket, sys
    listener = socket.create_server(("", 5000))
    print("listening", flush=True)
    peer = listener.accept()[0]
    count = 0
    while data := peer.recv(1 << 20):
        count += len(data)
        peer.sendall(b"+")
    print(count)
"""
# Sends so many pieces of so many bytes, and waits for an answer to each.
SEND = """
    import socket, sys, time
    number, piece = int(sys.argv[1]), int(sys.argv[2])
    peer = socket.create_connection(("host0", 5000))
    start = time.monotonic()
    for _ in range(number):
        peer.sendall(bytes(piece))
        peer.recv(1 << 16)
    peer.shutdown(socket.SHUT_WR)
    while peer.recv(1 << 16):
        pass
    print(time.monotonic() - start)
"""


def script(text, *args):
    return [*PYTHON, textwrap.dedent(text), *map(str, args)]


def start(bed, host, text, *args):
    """A program on a host that has said its first word."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = bed.popen(host, script(text, *args), **pipes)
    child.stdout.readline()
    return child


def alive(pid):
    """Is there a process with this id that has not ended?"""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_a_host_has_a_name_a_process_table_and_folders_of_its_own(bed):
    bed.run(0, ["sh", "-c", "echo of host0 | tee /tmp/note /dev/shm/note /var/tmp/note"])
    for host in range(2):
        assert bed.run(host, ["hostname"]) == f"host{host}\n"
        assert int(bed.run(host, script("import os; print(os.getpid())"))) < 100
        assert bed.run(host, ["ls", "/sys/class/net"]).split() == ["eth0", "lo"]
        assert bed.run(host, ["getent", "hosts", "host1"]).split() == [bed.address(1), "host1"]
    for folder in ("/tmp", "/dev/shm", "/var/tmp"):
        assert "note" in bed.run(0, ["ls", folder])
        assert "note" not in bed.run(1, ["ls", folder])
        assert not os.path.exists(f"{folder}/note")


def test_a_command_runs_in_the_folder_and_with_the_environment_of_its_caller(bed):
    show = script("import os; print(os.getcwd(), os.environ['COLOUR'])")
    assert bed.run(1, show, env={"COLOUR": "blue"}) == f"{os.getcwd()} blue\n"
    assert bed.run(1, show, env={"COLOUR": "red"}, cwd="/usr") == "/usr red\n"


def test_a_command_that_fails_says_what_it_said(bed):
    with pytest.raises(RuntimeError, match=r"sh on host1 ended with 3: lost"):
        bed.run(1, ["sh", "-c", "echo lost >&2; exit 3"])


def test_all_hosts_see_the_shared_folder(bed):
    (bed.shared / "note").write_text("for all")
    for host in range(2):
        assert bed.run(host, ["cat", bed.shared / "note"]) == "for all"


def test_a_process_of_a_host_is_a_child_that_can_be_killed(bed):
    child = bed.popen(1, ["sleep", "1000"])
    assert bed.processes(1) == [child.pid]
    assert bed.processes(0) == []
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert bed.processes(1) == []


def test_threads_of_a_program_start_processes_on_different_hosts_at_once(bed):
    said = {}

    def ask(number):
        said[number] = bed.run(number % 2, ["hostname"]).strip()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: f"host{number % 2}" for number in range(12)}
    assert subprocess.run(["hostname"], capture_output=True, check=True).stdout.strip() != b"host1"


def test_an_abstract_socket_of_a_host_is_not_there_on_another(bed):
    listen = """
        import socket, sys
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\\0weft-bed-test")
        listener.listen()
        print("listening", flush=True)
        sys.stdin.read()
    """
    connect = script("""
        import socket
        print(socket.socket(socket.AF_UNIX).connect_ex("\\0weft-bed-test"))
    """)
    with start(bed, 0, listen) as child:
        assert bed.run(0, connect) == "0\n"
        assert bed.run(1, connect) != "0\n"
        child.kill()


LISTEN = """
    import socket, sys
    listener = socket.create_server(("", 5000))
    print("listening", flush=True)
    sys.stdin.read()
"""


@pytest.mark.bed(hosts=8)
def test_every_host_reaches_every_other(bed):
    listeners = [start(bed, host, LISTEN) for host in range(8)]
    connect = """
        import socket, sys
        for name in sys.argv[1:]:
            print(socket.create_connection((name, 5000), timeout=20).getpeername()[0])
    """
    for host in range(8):
        said = bed.run(host, script(connect, *map(bed.name, range(8))))
        assert said.split() == [bed.address(other) for other in range(8)]
    for child in listeners:
        child.communicate()


def test_bytes_counted_are_those_sent_and_some_headers(bed):
    sent_before, received_before = bed.bytes(1)
    assert (sent_before, received_before) == (0, 0), "packets that nobody asked for"
    with start(bed, 0, SERVE) as server:
        bed.run(1, script(SEND, 8, MIB))
        assert int(server.communicate()[0]) == 8 * MIB
    sent, received = bed.bytes(1)
    assert 8 * MIB < sent < 8 * MIB * 1.1
    assert received < 8 * MIB * 0.1
    assert bed.bytes(0) == (received, sent)
    assert bed.packets(0) == bed.packets(1)[::-1]


def test_ranks_of_one_host_talk_without_the_network(bed):
    with start(bed, 0, SERVE) as server:
        bed.run(0, script(SEND, 1, MIB))
        server.wait()
    assert bed.bytes(0) == (0, 0)


@pytest.mark.bed(hosts=2, rate="80mbit")
def test_a_limited_cable_carries_its_rate_and_no_more_in_both_directions(bed):
    for sender, receiver in ((0, 1), (1, 0)):
        text = SEND.replace("host0", bed.name(receiver))
        with start(bed, receiver, SERVE) as server:
            seconds = float(bed.run(sender, script(text, 1, 8 * MIB)))
            server.wait()
        # The rest of a second is for bursts, which may go at once.
        assert 8 * MIB * 8 / seconds < 80e6 * 1.1


@pytest.mark.bed(hosts=2, delay="20ms")
def test_a_delayed_cable_takes_its_time(bed):
    with start(bed, 0, SERVE) as server:
        seconds = float(bed.run(1, script(SEND, 5, 1)))
        server.wait()
    assert seconds > 5 * 0.040


ECHO_ON_COMMAND = """
    import socket, sys
    peer = socket.create_connection(("host0", 5000))
    print("connected", flush=True)
    for line in sys.stdin:
        peer.sendall(line.encode())
        print(len(peer.recv(100)), flush=True)
"""


@pytest.mark.parametrize("seen", [False, True])
def test_a_cut_cable_loses_packets_and_a_mended_one_brings_the_connection_back(bed, seen):
    with start(bed, 0, SERVE) as server, start(bed, 1, ECHO_ON_COMMAND) as client:
        carrier = ["cat", "/sys/class/net/eth0/carrier"]
        bed.cut(1, seen=seen)
        assert bed.run(1, carrier) == ("0\n" if seen else "1\n")
        answered = bed.packets(1)[1]
        print("lost", file=client.stdin, flush=True)
        if not seen:
            sent = bed.packets(1)[0]
            waiting.until(lambda: bed.packets(1)[0] > sent + 1, "the packet is sent again")
        assert bed.packets(1)[1] == answered, "a packet came through a cut cable"
        bed.mend(1)
        assert bed.run(1, carrier) == "1\n"
        assert client.stdout.readline() == "1\n"
        client.kill()
        server.kill()


def test_only_the_host_whose_cable_is_cut_is_cut_off():
    with Bed(hosts=3) as bed:
        bed.cut(2)
        with start(bed, 0, SERVE) as server:
            bed.run(1, script(SEND, 1, 1))
            server.wait()
        bed.mend(2)
        with start(bed, 0, SERVE) as server:
            bed.run(2, script(SEND, 1, 1))
            server.wait()


COUNT_DATAGRAMS = """
    import socket
    inbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    inbox.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    inbox.bind(("", 5001))
    listener = socket.create_server(("", 5000))
    print("listening", flush=True)
    listener.accept()[0].recv(1)
    inbox.setblocking(False)
    count = 0
    try:
        while inbox.recv(100):
            count += 1
    except BlockingIOError:
        print(count)
"""
SEND_DATAGRAMS = """
    import socket, sys
    outbox = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(int(sys.argv[1])):
        outbox.sendto(b"x", ("host0", 5001))
    socket.create_connection(("host0", 5000)).send(b"x")  # behind all of them
"""


def datagrams_of_2000(bed, share):
    """How many come through."""
    try:
        bed.lose(1, 0)
        with start(bed, 0, COUNT_DATAGRAMS) as counter:
            bed.lose(1, share)
            bed.run(1, script(SEND_DATAGRAMS, 2000))
            return int(counter.communicate()[0])
    except Unavailable as error:
        pytest.skip(str(error))


def test_a_cable_loses_the_share_of_packets_that_it_is_told_to(bed):
    assert datagrams_of_2000(bed, 0) == 2000
    # Six deviations around what is to be expected.
    assert 1880 < datagrams_of_2000(bed, 0.03) < 1990
    assert 1270 < datagrams_of_2000(bed, 0.3) < 1530
    assert datagrams_of_2000(bed, 0) == 2000
    with pytest.raises(ValueError, match="share must be 0 to 1, not 2"):
        bed.lose(1, 2)


FAMILY = """
    import os, sys, time
    for _ in range(3):
        if os.fork() == 0:
            os.setsid()
            if os.fork() > 0:
                os._exit(0)  # its child has no parent any more
            while True:
                time.sleep(1000)
    print("started", flush=True)
    time.sleep(1000)
"""


def test_a_killed_host_leaves_no_processes_and_its_peers_get_no_word(bed):
    with start(bed, 1, FAMILY) as family, start(bed, 0, SERVE) as server:
        with start(bed, 1, ECHO_ON_COMMAND):
            waiting.until(lambda: len(bed.processes(1)) >= 5, "all have started")
            pids = bed.processes(1)
            last = bed.bytes(1)
            bed.kill(1)
        assert not [pid for pid in pids if alive(pid)]
        assert family.wait() == -signal.SIGKILL
        assert server.poll() is None, "the other end of a connection was told"
        assert bed.bytes(1) == last
        with pytest.raises(ValueError, match="host1 was killed"):
            bed.popen(1, ["true"])
        server.kill()
    bed.kill(1)


def test_a_bed_that_ends_leaves_nothing():
    with Bed(hosts=2) as bed:
        child = start(bed, 1, FAMILY)
        pids = [*bed.processes(1), *(host.pid for host in bed._hosts), bed._there()]
        shared = bed.shared
    assert child.returncode == -signal.SIGKILL
    child.communicate()
    assert not [pid for pid in pids if alive(pid)]
    assert not shared.exists()
    bed.close()


OWNER = """
    import subprocess, sys, time
    sys.path[:] = {path!r}
    from weft.bench.bed import Bed
    bed = Bed(hosts=2)
    sleepers = [bed.popen(host, ["sleep", "1000"]) for host in range(2)]
    pids = [child.pid for child in sleepers]
    pids += [host.pid for host in bed._hosts] + [bed._there()]
    print(bed.shared, *pids, flush=True)
    time.sleep(1000)
"""


def test_nothing_is_left_when_the_owner_is_killed():
    text = textwrap.dedent(OWNER).format(path=sys.path)
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True) as owner:
        shared, *pids = owner.stdout.readline().split()
        assert os.path.isdir(shared)
        owner.kill()
    waiting.until(lambda: not any(alive(pid) for pid in pids), "all processes are gone")
    waiting.until(lambda: not os.path.exists(shared), "the shared folder is gone")


def test_two_beds_are_there_at_once_and_do_not_meet():
    with Bed(hosts=2) as one, Bed(hosts=2) as other:
        with start(one, 0, SERVE) as server:
            with pytest.raises(RuntimeError, match="Connection refused"):
                other.run(1, script(SEND, 1, 1))
            one.run(1, script(SEND, 1, 1))
            server.wait()
        assert other.bytes(0)[0] < 1000


def test_the_machine_itself_has_no_interface_of_a_bed():
    before = os.listdir("/sys/class/net")
    with Bed(hosts=2):
        assert os.listdir("/sys/class/net") == before


def test_what_cannot_be_is_refused_and_leaves_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="hosts must be 1 to 64, not 0"):
        Bed(hosts=0)
    with pytest.raises(Unavailable, match=r"tc: .*quick"):
        Bed(hosts=2, rate="quick")
    assert os.listdir(tmp_path) == []


def test_rsh_runs_a_command_and_passes_on_what_it_says_reads_and_ends_with(bed):
    rsh = str(bed.rsh)
    said = bed.run(0, ["sh", "-c", f"echo here | {rsh} -n host1 'cat; hostname; echo >&2 er'"])
    assert said.split() == ["here", "host1", "er"]
    assert bed.run(0, [rsh, bed.address(1), "hostname"]) == "host1\n"
    with pytest.raises(RuntimeError, match="ended with 5"):
        bed.run(0, [rsh, "host1", "exit 5"])
    with pytest.raises(RuntimeError, match="ended with 137"):
        bed.run(0, [rsh, "host1", "kill -9 $$"])
    with pytest.raises(RuntimeError, match="ended with 255: rsh: host7 cannot be reached"):
        bed.run(0, [rsh, "host7", "hostname"])


def test_a_command_of_rsh_ends_with_its_caller(bed):
    caller = bed.popen(0, [bed.rsh, "host1", "sleep 1000"])
    waiting.until(lambda: bed.processes(1), "the command has started")
    caller.kill()
    waiting.until(lambda: not bed.processes(1), "the command has ended")


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def test_mpirun_of_open_mpi_starts_ranks_on_two_hosts(bed):
    need("mpirun.openmpi")
    launch = ["mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", bed.rsh]
    said = bed.run(0, [*launch, "--host", "host0:2,host1:2", "-n", "4", "hostname"])
    assert sorted(said.split()) == ["host0", "host0", "host1", "host1"]


def test_mpiexec_of_mpich_starts_ranks_on_two_hosts(bed):
    need("mpiexec.hydra")
    launch = ["mpiexec.hydra", "-launcher", "rsh", "-launcher-exec", bed.rsh]
    said = bed.run(0, [*launch, "-hosts", "host0:2,host1:2", "-n", "4", "hostname"])
    assert sorted(said.split()) == ["host0", "host0", "host1", "host1"]


SUM = """
import socket, torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.full((1 << 18,), float(dist.get_rank() + 1))
dist.all_reduce(x)
total = int(x.sum().item()) >> 18
# At once, whether Python buffers or not: two ranks share a pipe.
print(f"{socket.gethostname()} {dist.get_rank()} {dist.get_world_size()} {total}\\n", end="")
dist.destroy_process_group()
"""


def test_torchrun_with_two_agents_adds_over_gloo(bed):
    pytest.importorskip("torch.distributed.run")
    program = bed.shared / "sum.py"
    program.write_text(SUM)
    agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node"]
    agent += ["2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "host0:29400", program]
    pipes = {"stdout": subprocess.PIPE, "text": True, "env": {"OMP_NUM_THREADS": "1"}}
    agents = [bed.popen(host, agent, **pipes) for host in range(2)]
    said = [child.communicate(timeout=120)[0].split("\n") for child in agents]
    for host, lines in enumerate(said):
        words = [line.split() for line in lines if line]
        assert len(words) == 2
        assert all(word[0] == f"host{host}" and word[2:] == ["4", "10"] for word in words)
    assert bed.bytes(0)[0] > MIB, "gloo went another way"


@pytest.mark.bed(hosts=3)
def test_launch_sets_the_variables_of_torchrun_also_for_uneven_hosts(bed):
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    show = script(f"import os; print(*(os.environ[name] for name in {names!r}))")
    children = bed.launch(show, ranks=[0, 1, 2], stdout=subprocess.PIPE, text=True)
    said = [child.communicate()[0].split() for child in children]
    assert said == [
        ["0", "3", "0", "1", "1", "host1"],
        ["1", "3", "0", "2", "2", "host1"],
        ["2", "3", "1", "2", "2", "host1"],
    ]


def test_the_command_line_runs_a_program_on_each_host():
    bed = [sys.executable, "-m", "weft.bench.bed", "--hosts", "3", "--ranks", "2", "--"]
    done = subprocess.run(
        [*bed, "sh", "-c", "echo $RANK $(hostname)"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    expected = [f"{rank} host{rank // 2}" for rank in range(6)]
    assert sorted(done.stdout.splitlines()) == expected
    assert "host2: sent 0, received 0 bytes" in done.stderr


@pytest.mark.parametrize("wrong", [("--hosts", "0"), ("--ranks", "0"), ("--on", "2")])
def test_the_command_line_says_which_number_is_wrong(wrong):
    bed = [sys.executable, "-m", "weft.bench.bed", *wrong, "--", "true"]
    done = subprocess.run(bed, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "bed: error: " in done.stderr


def test_where_there_can_be_no_hosts_tests_are_skipped_and_say_why():
    tests = pathlib.Path(__file__).with_name("test_ranks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    env = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert "not installed: ip, tc, bridge" in done.stdout
    assert "passed" not in done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    "without",
    [["setpriv", "--bounding-set", "-sys_admin"], ["unshare", "--user", "--map-root-user"]],
)
def test_root_that_may_not_make_hosts_is_told_so(without):
    need(without[0])
    text = "from weft.bench.bed import missing; print(missing())"
    command = [*without, sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "for want of CAP_SYS_ADMIN" in done.stdout, done.stderr


def test_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert bed_module.missing.__wrapped__() == "hosts are network namespaces, which need root"
