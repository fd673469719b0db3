# SPDX-License-Identifier: Apache-2.0
"""What comes under the tags of weft.mpi, but is no message of it, is refused."""

import contextlib
import random
import struct

import jobs
import pytest
import torch
import weft

TAG = 3
WIRE_TAG = 0xC0000000 | TAG
PAYLOAD_TAG = WIRE_TAG | 0x20000000
MAGIC, FLOAT = 0x57654D50, 6
SHORT, LONG = 8, 1000  # numbers: with the header, and behind it


def header(numbers, magic=MAGIC, kind=FLOAT, mark=1):
    return struct.pack("<IIQqQ", magic, kind, 4 * numbers, mark, 0)


MALFORMED = {
    "a short header": (SHORT, [(header(SHORT)[:20], WIRE_TAG)]),
    "another magic number": (SHORT, [(header(SHORT, magic=1) + bytes(32), WIRE_TAG)]),
    "an unknown type": (SHORT, [(header(SHORT, kind=2**32 - 1) + bytes(32), WIRE_TAG)]),
    "less than its header says": (SHORT, [(header(SHORT) + bytes(4), WIRE_TAG)]),
    "more than its header says": (SHORT, [(header(SHORT) + bytes(40), WIRE_TAG)]),
    "a header alone": (SHORT, [(header(SHORT), WIRE_TAG)]),
    "a short payload": (LONG, [(header(LONG), WIRE_TAG), (bytes(8), PAYLOAD_TAG)]),
    "a long payload": (LONG, [(header(LONG), WIRE_TAG), (bytes(4004), PAYLOAD_TAG)]),
    "a payload in its header": (LONG, [(header(LONG) + bytes(4000), WIRE_TAG)]),
}


def malformed(comm, name, start):
    numbers, messages = MALFORMED[name]
    other = comm.Dup()
    if comm.rank == 1:
        for data, tag in messages:
            other.weft_comm.send(data, 0, tag)
    else:
        with pytest.raises(weft.MismatchError, match="rank 1 with tag 3"):
            if start:
                other.Wait(other.Irecv(torch.empty(numbers), 1, TAG))
            else:
                other.Recv(torch.empty(numbers), 1, TAG)
    comm.Barrier()


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_is_refused(name, start):
    jobs.run(2, malformed, name, start)


def at_random(comm):
    dice = random.Random(7)
    for _ in range(100):
        other = comm.Dup()
        numbers = dice.choice([0, 1, SHORT, 512, 513, LONG])
        data = bytearray(header(numbers) + bytes(4 * min(numbers, 512)))
        for _ in range(dice.randrange(3)):
            data[dice.randrange(len(data))] = dice.choice([0, 1, 127, 128, 255])
        data = data[: dice.choice([len(data), dice.randrange(len(data) + 1)])]
        if comm.rank == 1:
            with contextlib.suppress(weft.AbortedError):  # rank 0 may have refused the first
                other.weft_comm.send(data, 0, WIRE_TAG)
                other.weft_comm.send(bytes(4 * numbers), 0, PAYLOAD_TAG)
        else:
            try:
                other.Recv(torch.empty(numbers), 1, TAG)
            except weft.Error as error:
                assert "rank 1" in str(error)
        comm.Barrier()


def test_whatever_comes_does_no_harm():
    jobs.run(2, at_random)


def abort_with_numbers(comm):
    text = f"of {'9' * 30} bytes to rank 1, tag {'9' * 30}"
    if comm.rank == 1:
        comm.weft_comm.abort(text)
    with pytest.raises(weft.AbortedError, match="9" * 30):
        while True:
            comm.Recv(torch.empty(1), 1 - comm.rank)


def test_numbers_in_the_words_of_another_rank_can_be_of_any_length():
    jobs.run(2, abort_with_numbers)
