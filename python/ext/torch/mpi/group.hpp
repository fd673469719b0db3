/* SPDX-License-Identifier: Apache-2.0 */
/* MPI with gradients: what its parts know of each other.
 *
 *   bind        what Python sees
 *   calls       the calls as users make them; checks arguments
 *   autograd    the dispatcher's operations weft::*, and their derivatives
 *   ops         what each operation is: its result, its adjoint
 *   collective  one collective: tensors to memory, the library's call, back
 *   halo        the exchange of halos
 *   message     sends and receives, which carry a header
 *   kept        messages whose results a dispatch mode gives again
 *   handle      operations that are started now and waited for later
 *   record      what is kept of an operation for its backward
 *   graph       the order of the backward pass
 *   needed      the same where gradients of chosen inputs are asked for
 *   scope       the same inside of transforms and checkpoints
 *   token       compiled code in that order
 *   trace       the operations as compiled code has them
 *   memory      memory for results
 *
 * Every operation is a function of one tensor and of numbers, so that one
 * schema serves all: (Tensor x, int comm, int mark, int[] args) -> Tensor. What
 * the numbers are is said at each Kind. */
#pragma once

#include <condition_variable>
#include <list>
#include <map>

#include "backend.hpp"
#include "mpi/graph.hpp"
#include "mpi/kept.hpp"
#include "mpi/memory.hpp"

namespace weft_torch::mpi
{

using at::IntArrayRef;
using at::Tensor;
using Numbers = std::vector<int64_t>;

/* "counts" is a number for each rank: its length along the axis. */
enum class Kind : int {
    Allreduce,     /* op, replicated */
    Reduce,        /* op, root */
    Bcast,         /* root */
    Gather,        /* axis, root, counts */
    Allgather,     /* axis, replicated, counts */
    Scatter,       /* axis, root, counts, shape of the result here */
    ReduceScatter, /* op, axis, counts */
    Alltoall,      /* gather axis, scatter axis, counts sent, received */
    Scan,          /* op, from the last rank */
    Exscan,        /* op, from the last rank */
    Halo,          /* for each axis: axis, low, high, rank below, above */
    HaloBack,      /* the same: its adjoint */
    Replicate,     /* nothing: x is x; its adjoint is a sum over ranks */
    Own,           /* axis, counts: this rank's part */
    Join,          /* nothing: x is x, behind all communications; or anything:
                    * behind those of the transform that it is called in */
    Barrier,       /* nothing: x is x, when all ranks are there */
    Send,          /* rank, tag, level, lazy: the result is empty */
    Recv,          /* rank, tag, level: x says shape and type */
    Sendrecv,      /* to, tag, from, tag, level, shape of what is received */
};
constexpr int kinds = 19;
using AllKinds = std::make_integer_sequence<int, kinds>;

/* "allreduce". */
const char *name_of(Kind kind);

/* What ranks compare beside the call itself: which operation of this layer it
 * is, and whether gradients are recorded. The lower part is a number; that of
 * the operation itself, or of the one whose derivative it is. */
constexpr int64_t mark_grad = int64_t(1) << 56;    /* gradients recorded */
constexpr int64_t mark_tangent = int64_t(1) << 57; /* its tangent follows */
constexpr int64_t mark_backward = int64_t(1) << 58;
constexpr int64_t mark_is_tangent = int64_t(1) << 59;
constexpr int64_t mark_number = (int64_t(1) << 48) - 1;
/* What is moved is bytes to the library; so the mark has the type, plus 1. */
constexpr int mark_type_shift = 48;
constexpr int64_t mark_type = int64_t(0xff) << mark_type_shift;
/* A message has its type elsewhere. There those bits are "gradients recorded"
 * and "its tangent follows" of each transform that the call is made in, the
 * outermost first: whoever receives it must be inside as many, and takes part
 * in the derivatives of the same ones. The mark of a receive has the bits of
 * all that can. */
constexpr int64_t most_transforms = 4;
constexpr int64_t mark_grads = mark_grad | int64_t(0x55) << mark_type_shift;
constexpr int64_t mark_tangents = mark_tangent | int64_t(0xaa)
                                                     << mark_type_shift;
inline int64_t type_in_mark(at::ScalarType type)
{
    return (int64_t(type) + 1) << mark_type_shift;
}

/* Throws weft.MismatchError and the like unless `status` is WEFT_OK. */
void check_mpi(weft_status status, const char *what);
[[noreturn]] void fail_mpi(weft_status status, const std::string &text);
/* Throws what a handler of Python raised, Ctrl-C's say; on the main thread. */
void check_signals();

/* Say, once, that communications were dropped for which no backward came. */
void warn_of_dropped(size_t nodes);

class Letter;

/* A rank, and a tag on the wire. */
using Place = std::pair<uint32_t, uint32_t>;

/* An operation under way, with the memory that the library borrows. */
struct Pending {
    virtual ~Pending() = default;
    virtual bool done() = 0; /* never blocks, drives progress */
    virtual bool sends() const
    {
        return false;
    }
};

/* A communicator. All that stand for one communicator of the library are one,
 * because they share its order. */
class Group : public std::enable_shared_from_this<Group>
{
  public:
    explicit Group(pybind11::object place);
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    /* The one for the communicator that `place` lends. */
    static std::shared_ptr<Group> at_place(pybind11::object place);
    /* The one with this number; throws if it is gone. */
    static std::shared_ptr<Group> by_id(int64_t id);

    weft_comm *comm() const;
    /* The same ranks in reverse; collective the first time. */
    weft_comm *reversed();
    /* Give the communicator back; later calls fail. */
    void close();
    bool is_open() const
    {
        return lease_ != nullptr;
    }

    /* The mark of the call that is about to be made, which gets a number. */
    int64_t next_mark(int64_t mark);

    /* Is this a child's copy of it? Then no other thread has part in it. */
    bool is_of_parent() const
    {
        return forks_ != forks();
    }

    const int64_t id;
    const int64_t rank;
    const int64_t size;
    bool replicated = false;    /* the convention, see docs/guide/mpi.md */
    std::atomic<int> owners{0}; /* in the hands of Python */
    uint64_t number = 0;        /* of the last collective */
    Renewed<std::mutex> lock;   /* around collective calls */
    const std::shared_ptr<Chain> chain = std::make_shared<Chain>();
    const std::shared_ptr<Memory> memory = std::make_shared<Memory>();
    KeptResults kept;
    /* Around what follows. */
    Renewed<std::mutex> message_lock;
    /* Messages sent so far, by rank and tag on the wire. */
    std::map<Place, uint64_t> sent;
    /* Receives that wait for their turn, by tag on the wire. */
    std::map<uint32_t, std::list<Letter *>> queues;
    Renewed<std::condition_variable> turn;
    /* Operations under way that nobody waits for. */
    std::list<std::unique_ptr<Pending>> lazy;
    void keep(std::unique_ptr<Pending> pending);
    /* Wait until the messages among them have left; how many have not. */
    size_t drain(double seconds);
    /* Who will ask for gradients of messages, by where they come from; and what
     * nobody has asked for, in words. */
    std::map<Place, int> askers;
    std::map<Place, std::string> unasked;
    std::atomic<bool> any_unasked{false};
    /* The words for a gradient that is lost; "" if none is. */
    std::string lost_gradient();

  private:
    const uint64_t forks_ = forks();
    std::shared_ptr<Lease> lease_;
    weft_comm *reversed_ = nullptr;
};

using GroupPtr = std::shared_ptr<Group>;

/* weft::NAME through the dispatcher: with gradients, transforms and all. */
Tensor call_op(Kind kind, const Tensor &x, int64_t comm, int64_t mark,
               IntArrayRef args);

Tensor call_op(Kind kind, const Tensor &x, const GroupPtr &group, int64_t mark,
               IntArrayRef args);

/* The operation itself, on plain tensors. */
Tensor run_kind(Kind kind, const Tensor &x, Group &group, int64_t mark,
                IntArrayRef args);

Tensor run_halo(const Tensor &x, Group &group, int64_t mark, IntArrayRef args,
                bool back);

/* What the counts say of this rank's tensor must be so, or memory that is not
 * its own would be sent. */
void check_counts(Kind kind, IntArrayRef shape, const Group &group,
                  IntArrayRef args);

/* The shape of the result. */
Numbers result_shape(Kind kind, IntArrayRef x, const Group &group,
                     IntArrayRef args);

/* What the adjoint of an operation is: another one, times a factor. */
template <class N> struct AdjointOf {
    Kind kind;
    std::vector<N> args;
    double factor = 1;
};
using Adjoint = AdjointOf<int64_t>;
Adjoint adjoint_of(Kind kind, IntArrayRef x, const Group &group,
                   IntArrayRef args);

/* Is the result a differentiable function of the input? */
bool differentiable(Kind kind, IntArrayRef args, at::ScalarType type);

/* Is somebody tracing, transforming, or intercepting? Then operations on `x`
 * are not carried out as they are called. */
bool is_traced(const Tensor &x);
bool is_transformed(const Tensor &x);
/* Is this call made inside a transform of torch.func? */
bool in_transform();

/* The library's name of a torch type, for a reduction by `op`. */
weft_dtype reduced_type(at::ScalarType type, weft_op_kind op);

/* Host memory without gaps that holds what `x` does. */
Tensor plain(const Tensor &x);

} // namespace weft_torch::mpi
