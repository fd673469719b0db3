# SPDX-License-Identifier: Apache-2.0
"""weft.nn: embeddings on a shared table look like torch's."""

import pytest
import ranks

torch = pytest.importorskip("torch")

import weft  # noqa: E402
import weft.optim  # noqa: E402


def pair(rows=11, width=4, **more):
    """Ours and torch's, with the same weights."""
    ours = weft.nn.Embedding(rows, width, **more)
    theirs = torch.nn.Embedding(rows, width, padding_idx=more.get("padding_idx"))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def test_rows_of_any_shape_of_ids_are_those_of_torch(alone):
    ours, theirs = pair()
    for shape in ((), (0,), (3,), (2, 5), (2, 0, 3), (1, 2, 3)):
        for kind in (torch.int32, torch.int64):
            ids = torch.randint(11, shape, dtype=kind)
            assert torch.equal(ours(ids), theirs(ids))
    assert ours.weight.shape == (11, 4) and weft.region(ours.weight).comm is not None
    assert (ours.num_embeddings, ours.embedding_dim) == (11, 4)
    assert "11, 4" in repr(ours)
    with pytest.raises(weft.InvalidError, match="out of range"):
        ours(torch.tensor([11]))
    assert not ours(torch.tensor([-1])).any()


def test_an_unknown_argument_is_one_of_the_function_that_was_called(alone, tmp_path):
    weft.region(weft.zeros((3, 2))).save(tmp_path / "t.weft")
    for make, name in (
        (lambda **more: weft.nn.Embedding(3, 2, **more), "weft.nn.Embedding"),
        (lambda **more: weft.nn.EmbeddingBag(3, 2, **more), "weft.nn.EmbeddingBag"),
        (lambda **more: weft.empty((3, 2), **more), "weft.empty"),
        (lambda **more: weft.zeros((3, 2), **more), "weft.zeros"),
        (lambda **more: weft.full((3, 2), 1.0, **more), "weft.full"),
        (lambda **more: weft.from_file(tmp_path / "t.weft", **more), "weft.from_file"),
    ):
        with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected .* 'colour'$"):
            make(colour="red")
        make(pages="small")
    with pytest.raises(TypeError, match=r"weft\.nn\.Embedding has no argument 'max_norm'"):
        weft.nn.Embedding(3, 2, max_norm=1.0)


def test_gradients_are_collected_as_torch_adds_them(alone):
    ours, theirs = pair(padding_idx=-2)
    ids = torch.tensor([[1, 9, 1], [3, 1, 10]])
    factor = torch.randn(2, 3, 4)
    assert ours.grad is None
    for _ in range(2):
        for module in (ours, theirs):
            (module(ids) * factor).sum().backward()
    assert torch.allclose(ours.grad.to_dense(), theirs.weight.grad)
    assert not theirs.weight.grad[9].any()
    ours.zero_grad()
    assert ours.grad is None


def test_nothing_is_collected_where_nothing_is_trained(alone):
    emb = weft.nn.Embedding(5, 2)
    with torch.no_grad():
        assert not emb(torch.tensor([1])).requires_grad
    frozen = weft.nn.Embedding.from_pretrained(emb.weight)
    assert not frozen(torch.tensor([1])).requires_grad
    assert torch.equal(frozen.weight, emb.weight) and list(weft.nn.tables(frozen)) == []
    thawed = weft.nn.Embedding.from_pretrained(weft.zeros((3, 2)), freeze=False, padding_idx=1)
    thawed(torch.tensor([0, 1])).sum().backward()
    assert thawed.grad.to_dense().tolist() == [[1, 1], [0, 0], [0, 0]]


def test_ids_that_change_between_forward_and_backward_are_told(alone):
    emb = weft.nn.Embedding(5, 2)
    ids = torch.tensor([1, 2])
    out = emb(ids)
    ids += 1
    with pytest.raises(RuntimeError, match="inplace"):
        out.sum().backward()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_are_those_of_torch(alone, mode):
    for padding in (None, 2):
        ours = weft.nn.EmbeddingBag(9, 3, mode, padding_idx=padding)
        theirs = torch.nn.EmbeddingBag(9, 3, mode=mode, padding_idx=padding)
        theirs.load_state_dict(ours.state_dict())
        for arguments in (
            (torch.tensor([[1, 2, 1], [2, 2, 2]]),),
            (torch.tensor([1, 2, 2, 8, 0]), torch.tensor([0, 2, 2, 4])),
            (torch.tensor([3, 3], dtype=torch.int32), torch.tensor([0, 2])),
            (torch.tensor([], dtype=torch.int64), torch.tensor([0, 0])),
        ):
            got, wanted = ours(*arguments), theirs(*arguments)
            assert torch.allclose(got, wanted), arguments
            factor = torch.randn_like(wanted)
            for result in (got, wanted):
                (result * factor).sum().backward()
        assert torch.allclose(ours.grad.to_dense(), theirs.weight.grad, atol=1e-6)


def test_samples_of_a_bag_have_weights_with_gradients(alone):
    ours = weft.nn.EmbeddingBag(9, 3, "sum", include_last_offset=True)
    theirs = torch.nn.EmbeddingBag(9, 3, mode="sum", include_last_offset=True)
    theirs.load_state_dict(ours.state_dict())
    ids, offsets = torch.tensor([1, 2, 1, 7]), torch.tensor([0, 3, 4])
    weights = [torch.tensor([0.5, 2.0, -1.0, 3.0], requires_grad=True) for _ in range(2)]
    for module, weight in zip((ours, theirs), weights, strict=True):
        module(ids, offsets, per_sample_weights=weight).square().sum().backward()
    assert torch.allclose(weights[0].grad, weights[1].grad)
    assert torch.allclose(ours.grad.to_dense(), theirs.weight.grad)
    with pytest.raises(weft.InvalidError, match="mode"):
        weft.nn.EmbeddingBag(3, 2, "median")


def test_a_state_dict_is_as_torch_has_it(alone):
    model = torch.nn.Sequential(weft.nn.Embedding(6, 3), torch.nn.Linear(3, 2))
    state = model.state_dict()
    assert list(state) == ["0.weight", "1.weight", "1.bias"]
    assert state["0.weight"].data_ptr() == model[0].weight.data_ptr()
    other = torch.nn.Sequential(weft.nn.Embedding(6, 3), torch.nn.Linear(3, 2))
    assert other.load_state_dict(state).missing_keys == []
    assert torch.equal(other[0].weight, model[0].weight)
    assert other.load_state_dict({}, strict=False).unexpected_keys == []
    with pytest.raises(RuntimeError, match=r"Missing key.*0.weight"):
        other.load_state_dict({k: v for k, v in state.items() if k != "0.weight"})
    with pytest.raises(RuntimeError, match="shape"):
        other.load_state_dict({**state, "0.weight": torch.zeros(5, 3)})
    with pytest.raises(RuntimeError, match="Unexpected"):
        other.load_state_dict({**state, "0.bias": torch.zeros(5, 3)})
    assert len(list(model.parameters())) == 2


def test_wrong_tables_are_told(alone):
    for wrong, text in (
        (weft.zeros(4), "two dimensions"),
        (weft.zeros((4, 2), torch.int64), "floating"),
        (torch.zeros(4, 2), "region"),
        (weft.zeros((4, 2))[1:], "part of a region"),
        (weft.zeros((4, 4)).t(), "part of a region"),
        (weft.zeros((4, 2))[:, :1], "part of a region"),
    ):
        with pytest.raises(weft.InvalidError, match=text):
            weft.nn.Embedding.from_pretrained(wrong)
    with pytest.raises(weft.InvalidError, match="padding_idx"):
        weft.nn.Embedding(3, 2, padding_idx=3)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.uint16, torch.uint64])
def test_ids_may_be_of_any_type_of_integers(alone, kind):
    ids = torch.tensor([[1, 2], [3, 3]])
    for make in (weft.nn.Embedding, weft.nn.EmbeddingBag):
        emb = make(300, 3, padding_idx=2)
        wanted = emb(ids).detach()
        emb(ids).sum().backward()
        gradient = emb.grad.to_dense()
        emb.zero_grad()
        found = emb(ids.to(kind))
        found.sum().backward()
        assert torch.equal(found, wanted) and torch.equal(emb.grad.to_dense(), gradient)
        weft.optim.SGD(emb).step()
        assert torch.equal(emb(ids.tolist()), emb(ids))


def one_cannot_fill_its_rows():
    comm = weft.init(timeout=60).comm

    def init(rows):
        raise ArithmeticError("a number is missing")

    # Two of three ranks have rows, so the third does not call it.
    here = ArithmeticError if comm.rank < 2 else weft.SystemError
    with pytest.raises(here, match="a number is missing"):
        weft.nn.Embedding(4, 2, partition=[2, 2, 0], init=init)
    comm.barrier()  # nobody waits for anybody


def test_what_one_rank_cannot_fill_is_told_to_all():
    ranks.run(3, one_cannot_fill_its_rows)


def test_a_compiled_model_takes_it_as_it_is(alone):
    emb = weft.nn.Embedding(5, 2)
    compiled = torch.compile(lambda ids: emb(ids) * 2, backend="eager")
    ids = torch.tensor([4, 0])
    compiled(ids).sum().backward()
    assert torch.equal(compiled(ids), emb(ids) * 2)
    assert emb.grad.to_dense().sum() == 8


def looks_the_same_on_all_ranks(folder):
    torch.manual_seed(1)  # the same on all, and yet rows differ
    comm = weft.init().comm
    for partition in ("equal", "round_robin"):
        emb = weft.nn.Embedding(50, 8, padding_idx=49, partition=partition)
        rows = emb.state_dict()["weight"]
        assert rows[:49].unique(dim=0).shape[0] == 49 and not rows[49].any()
        sums = torch.stack([rows.sum(), torch.rand(())])
        every = torch.empty(comm.size, 2)
        comm.allgather(sums, every)
        assert (every == every[0]).all(), "tables, or what comes after, differ"
        emb.save(f"{folder}/{partition}.weft")
        other = weft.nn.Embedding(50, 8, init=torch.nn.init.zeros_)
        assert not other.weight.any()
        comm.barrier()
        other.load(f"{folder}/{partition}.weft")
        assert torch.equal(other.weight, rows)
        comm.barrier()
        other.load_state_dict({"weight": rows * 2})
        emb.load_state_dict({"weight": rows.clone() * 2})
        assert torch.equal(other.weight, emb(torch.arange(50)).detach())
        comm.barrier()
    trains_beside_dense_parameters(comm)


def trains_beside_dense_parameters(comm):
    """Unequal batches, and one rank that has none at all in some steps."""
    model = torch.nn.Sequential(weft.nn.EmbeddingBag(30, 4, "sum"), torch.nn.Linear(4, 1))
    for p in model.parameters():
        comm.broadcast(p.data)
    sparse = weft.optim.Adagrad(model, lr=0.3)
    dense = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(12):
        sparse.zero_grad()
        dense.zero_grad()
        if comm.rank == 0 or step % 3:
            ids = torch.arange(2 * (comm.rank + 1) * 3).reshape(-1, 3) % 30
            loss = (model(ids) - 1).square().mean()
            loss.backward()
            losses.append(loss.item())
        for p in model.parameters():
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            comm.allreduce(p.grad)
        sparse.step()
        dense.step()
    assert losses[-1] < 0.2 * losses[0], losses


@pytest.mark.parametrize("size", [1, 3])
def test_all_ranks_see_and_train_one_table(size, tmp_path, request):
    if size == 1:
        request.getfixturevalue("alone")
        looks_the_same_on_all_ranks(str(tmp_path))
    else:
        ranks.run(size, looks_the_same_on_all_ranks, str(tmp_path))
