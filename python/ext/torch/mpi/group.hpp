/* SPDX-License-Identifier: Apache-2.0 */
/* MPI with gradients: the declarations that its parts share.
 *
 * bind what Python sees calls the public calls; checks arguments dispatch the
 * operations weft::* of torch's dispatcher autograd their derivatives args the
 * kinds of operations, and the arguments of each ops the shape of their
 * results, their adjoints composed nonlinear reductions, composed of linear
 * operations collective one collective: tensors to memory, the library's call,
 * back halo the exchange of halos message one message with its header sendrecv
 * the operations that send and receive handle nonblocking operations record
 * what is kept of an operation for its backward graph the order of the backward
 * pass needed that order for gradients of chosen inputs scope that order inside
 * transforms and checkpoints token that order in compiled code trace the
 * operations of compiled code memory memory for results */
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

/* The mark of a call, which ranks compare: which operation of this layer it is,
 * and whether gradients are recorded. Its lower bits are the number of the
 * operation, or of the one whose derivative it is. */
constexpr int64_t mark_grad = int64_t(1) << 56;    /* gradients recorded */
constexpr int64_t mark_tangent = int64_t(1) << 57; /* its tangent follows */
constexpr int64_t mark_backward = int64_t(1) << 58;
constexpr int64_t mark_is_tangent = int64_t(1) << 59;
constexpr int64_t mark_number = (int64_t(1) << 48) - 1;
/* The library moves bytes, so the mark has the element type, plus 1. */
constexpr int mark_type_shift = 48;
constexpr int64_t mark_type = int64_t(0xff) << mark_type_shift;
/* A message has its type in the header. In its mark those bits are "gradients
 * recorded" and "its tangent follows" of each transform around the call, the
 * outermost first: the receiver must be inside as many, and takes part in the
 * same derivatives. The mark of a receive has the bits of all it can take part
 * in. */
constexpr int64_t most_transforms = 4;
constexpr int64_t mark_grads = mark_grad | int64_t(0x55) << mark_type_shift;
constexpr int64_t mark_tangents = mark_tangent | int64_t(0xaa)
                                                     << mark_type_shift;
inline int64_t type_in_mark(at::ScalarType type)
{
    return (int64_t(type) + 1) << mark_type_shift;
}

/* Throws the exception of `status`, as weft.MismatchError, unless it is
 * WEFT_OK. */
void check_mpi(weft_status status, const char *what);
[[noreturn]] void fail_mpi(weft_status status, const std::string &text);
/* Throws what a Python signal handler raised, as for Ctrl-C; main thread
 * only. */
void check_signals();

/* Warn, once, that communications were dropped for which no backward ran. */
void warn_of_dropped(size_t nodes);

class Letter;

/* Rank and wire tag of a message. */
using Envelope = std::pair<uint32_t, uint32_t>;

/* An outstanding operation with the memory that the library borrows. */
struct Pending {
    virtual ~Pending() = default;
    virtual bool done() = 0; /* never blocks, drives progress */
    virtual bool sends() const
    {
        return false;
    }
};

/* A communicator. There is one Group for each communicator of the library,
 * because all users of it share one order of operations. */
class Group : public std::enable_shared_from_this<Group>
{
  public:
    explicit Group(pybind11::object group_comm);
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    /* The Group of the communicator that `group_comm` lends. */
    static std::shared_ptr<Group> with_comm(pybind11::object group_comm);
    /* The Group with this id; throws if it was freed. */
    static std::shared_ptr<Group> by_id(int64_t id);

    weft_comm *comm() const;
    /* Give the communicator back; later calls fail. */
    void close();
    bool is_open() const
    {
        return lease_ != nullptr;
    }

    /* Call a collective function of the library, with the number of the call in
     * its mark; returns that number. */
    template <class F>
    int64_t call(int64_t mark, const char *what, const F &function,
                 bool reversed = false);

    /* Is this the copy in a forked child? Then no other thread uses it. */
    bool is_of_parent() const
    {
        return forks_ != forks();
    }

    const int64_t id;
    const int64_t rank;
    const int64_t size;
    bool replicated = false;    /* Comm.convention, see docs/guide/mpi.md */
    std::atomic<int> owners{0}; /* Comm objects of Python */
    uint64_t number = 0;        /* of the last collective */
    Renewed<std::mutex> lock;   /* guards collective calls */
    const std::shared_ptr<Chain> chain = std::make_shared<Chain>();
    const std::shared_ptr<Memory> memory = std::make_shared<Memory>();
    std::atomic<int64_t> carried_out{0}; /* operations, by the dispatcher */
    /* Guards the members below. */
    Renewed<std::mutex> message_lock;
    /* The number of messages sent so far. */
    std::map<Envelope, uint64_t> sent;
    /* Receives that wait for their turn, by wire tag. */
    std::map<uint32_t, std::list<Letter *>> queues;
    Renewed<std::condition_variable> turn;
    /* Outstanding operations whose completion nobody waits for. */
    std::list<std::unique_ptr<Pending>> lazy;
    void keep(std::unique_ptr<Pending> pending);
    /* Wait until the lazy sends are complete; returns how many are not. */
    size_t drain(double seconds);
    /* How many nodes will receive gradients of messages; and descriptions of
     * the messages whose gradient none of them will receive. */
    std::map<Envelope, int> askers;
    std::map<Envelope, std::string> unasked;
    std::atomic<bool> any_unasked{false};
    /* The error text for a gradient that is lost, or "". */
    std::string lost_gradient();

  private:
    int64_t next_mark(int64_t mark);
    /* The ranks in reverse order; the first call is collective. */
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

/* What the backward pass must know of an operation. */
struct OpInfo {
    int64_t number = 0; /* of the operation or its messages, see message.hpp */
    int64_t mark = 0;   /* of the received message, as sent */
    int64_t peer = 0;   /* the source of the received message */
};
struct Outcome {
    Tensor y;
    OpInfo info = {};
    Tensor numbers = {}; /* `info` as the dispatcher's tensor */
};

/* Call weft::NAME, with gradients and transforms. */
Tensor call_op(const Args &args, const Tensor &x, const GroupPtr &group,
               int64_t mark);

/* Execute an operation on plain tensors, without derivatives. */
Outcome run_kind(const Args &args, const Tensor &x, Group &group, int64_t mark);
Outcome run_halo(const Args &args, const Tensor &x, Group &group, int64_t mark);

/* Throws unless the counts match this rank's tensor: else memory beyond it
 * would be sent. */
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

/* Is a tracer, a transform or a dispatch mode active? Then operations on `x`
 * must go through the dispatcher. */
bool is_traced(const Tensor &x);
bool is_transformed(const Tensor &x);
/* Is this call made inside a transform of torch.func? */
bool in_transform();

/* The library's type for a torch type in a reduction by `op`. */
weft_dtype reduced_type(at::ScalarType type, weft_op_kind op, Kind kind);

/* A contiguous host tensor with the values of `x`. */
Tensor plain(const Tensor &x);

} // namespace weft_torch::mpi
