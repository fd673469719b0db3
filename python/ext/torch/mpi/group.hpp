/* SPDX-License-Identifier: Apache-2.0 */
/* MPI with gradients: what its parts know of each other.
 *
 *   bind        what Python sees
 *   calls       the calls as users make them; checks arguments
 *   dispatch    the operations weft::* of torch's dispatcher
 *   autograd    their derivatives
 *   args        the kinds of operations, and the arguments of each
 *   ops         the shape of their results, their adjoints
 *   composed    reductions that are put together from others
 *   collective  one collective: tensors to memory, the library's call, back
 *   halo        the exchange of halos
 *   message     one message, which carries a header
 *   sendrecv    the operations that send and receive
 *   handle      operations that are started now and waited for later
 *   record      what is kept of an operation for its backward
 *   graph       the order of the backward pass
 *   needed      the same where gradients of chosen inputs are asked for
 *   scope       the same inside of transforms and checkpoints
 *   token       compiled code in that order
 *   trace       the operations as compiled code has them
 *   memory      memory for results */
#pragma once

#include <condition_variable>
#include <list>
#include <map>

#include "backend.hpp"
#include "mpi/args.hpp"
#include "mpi/graph.hpp"
#include "mpi/memory.hpp"

namespace weft_torch::mpi
{

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
    /* Give the communicator back; later calls fail. */
    void close();
    bool is_open() const
    {
        return lease_ != nullptr;
    }

    /* Call a collective function of the library, with a mark that has the
     * number of the call; returns that number. */
    template <class F>
    int64_t call(int64_t mark, const char *what, const F &function,
                 bool reversed = false);

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
    std::atomic<int64_t> carried_out{0}; /* by the dispatcher */
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
    int64_t next_mark(int64_t mark);
    /* The same ranks in reverse; collective the first time. */
    weft_comm *reversed();

    const uint64_t forks_ = forks();
    std::shared_ptr<Lease> lease_;
    weft_comm *reversed_ = nullptr;
};

using GroupPtr = std::shared_ptr<Group>;

template <class F>
int64_t Group::call(int64_t mark, const char *what, const F &function,
                    bool in_reverse)
{
    std::unique_lock<std::mutex> guard(lock);
    weft_comm *over = in_reverse ? reversed() : comm();

    weft_comm_set_mark(over, uint64_t(next_mark(mark)));
    int64_t own = int64_t(number);
    weft_status status = function(over);

    weft_comm_set_mark(over, 0);
    guard.unlock(); /* an error needs Python, whose holder may want the lock */
    check_mpi(status, what);
    return own;
}

/* What an operation tells beside its result. */
struct Told {
    int64_t number = 0; /* its own; or those of its messages, see message.hpp */
    int64_t mark = 0;   /* with which the message was sent that was received */
    int64_t peer = 0;   /* by whom */
};
struct Outcome {
    Tensor y;
    Told told = {};
    Tensor numbers = {}; /* the same as a tensor, from the dispatcher */
};

/* weft::NAME, with gradients, transforms and all. */
Tensor call_op(const Args &args, const Tensor &x, const GroupPtr &group,
               int64_t mark);

/* The operation itself, on plain tensors. */
Outcome run_kind(const Args &args, const Tensor &x, Group &group, int64_t mark);
Outcome run_halo(const Args &args, const Tensor &x, Group &group, int64_t mark);

/* What the counts say of this rank's tensor must be so, or memory that is not
 * its own would be sent. */
void check_counts(const Args &args, IntArrayRef shape, const Group &group);

/* The shape of the result, from that of the input. */
template <class N>
List<N> result_shape(const ArgsOf<N> &args, Slice<N> x, const Group &group);

/* The adjoint of an operation: another one, times a factor. */
template <class N> struct AdjointOf {
    ArgsOf<N> args;
    double factor;
};
using Adjoint = AdjointOf<int64_t>;
template <class N>
AdjointOf<N> adjoint_of(const ArgsOf<N> &args, Slice<N> x, const Group &group);

/* Is the result a differentiable function of the input? */
bool differentiable(const Args &args, at::ScalarType type);

/* Is somebody tracing, transforming, or intercepting? Then operations on `x`
 * are not carried out as they are called. */
bool is_traced(const Tensor &x);
bool is_transformed(const Tensor &x);
/* Is this call made inside a transform of torch.func? */
bool in_transform();

/* The library's name of a torch type, for a reduction by `op`. */
weft_dtype reduced_type(at::ScalarType type, weft_op_kind op, Kind kind);

/* Host memory without gaps that holds what `x` does. */
Tensor plain(const Tensor &x);

} // namespace weft_torch::mpi
