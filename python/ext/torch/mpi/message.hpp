/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, each with a header that tells what it is: so a
 * receive can say that it got something else than it expects, and learns
 * whether the sender records gradients. */
#pragma once

#include <array>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

constexpr int64_t no_rank = -1; /* MPI's PROC_NULL */
constexpr int64_t any_rank = WEFT_ANY_SOURCE;
constexpr int64_t max_tag = (int64_t(1) << 26) - 1;

/* On the wire, of a message or of its derivative. */
uint32_t wire_tag(int64_t tag, int64_t level);

/* The first thing in every message. */
struct Header {
    uint32_t magic;
    uint32_t type; /* at::ScalarType */
    uint64_t bytes;
    int64_t mark;
    uint64_t zero;
};
static_assert(sizeof(Header) == 32, "sent as bytes");

/* One message under way. A short one travels with its header; a long one
 * follows it under a tag of its own, straight from and to the tensor. Both
 * sides know the length, so both know which it is.
 *
 * Who sends a long one to a receive from any rank is known when the header is
 * there, and only then its payload can be asked for, by whoever drives
 * progress. Until then all later receives with that tag wait in a queue, or
 * they would take that payload for theirs. Nothing is lost by it: none of them
 * could get a message before the first one has. */
class Letter : public Pending
{
  public:
    Letter(Group &group, int64_t peer, int64_t tag, int64_t level);
    /* What `args` says of the message that it sends, or the only one. */
    Letter(Group &group, const Args &args)
        : Letter(group, args.peer, args.tag, args.level)
    {
    }
    ~Letter() override;
    Letter(const Letter &) = delete;
    Letter &operator=(const Letter &) = delete;

    /* The tensors are plain, and kept. The mark of what belongs to another
     * message has that one's number; a message of its own gets the next. */
    void send(const Tensor &x, int64_t mark, bool waits);
    void start_receive(const Tensor &out, int64_t mark);

    void wait(const char *what);
    bool done() override;
    bool sends() const override
    {
        return !receives_;
    }

    int64_t peer() const /* who sent it, once it is there */
    {
        return peer_;
    }
    int64_t number() const
    {
        return number_;
    }
    int64_t mark() const /* with which it was sent */
    {
        return header_.mark;
    }

  private:
    static constexpr size_t most_short = 2048;

    bool is_short() const
    {
        return tensor_.nbytes() <= most_short;
    }
    uint32_t wire_tag(bool of_payload) const;
    void write_header(int64_t mark);
    bool is_long_from_any() const
    {
        return peer_ == any_rank && !is_short();
    }
    bool takes_turn();
    void leave_queue();
    void await_turn();
    weft_status post();
    weft_status post_payload();
    static void header_came(weft_request *request, weft_status status,
                            void *letter);
    void check(weft_status status, const char *what) const;
    void check_header(const char *what, size_t came);
    void check_payload(const char *what);
    [[noreturn]] void refuse(const char *what, const std::string &wrong);

    Group &group_;
    const std::weak_ptr<Group> living_; /* the same, for who comes late */
    weft_comm *comm_ = nullptr;
    int64_t peer_;
    const int64_t tag_;
    const int64_t level_;
    Tensor tensor_;
    int64_t expected_ = 0; /* the mark a receive wants */
    int64_t number_ = 0;
    bool receives_ = false;
    bool lined_up_ = false;      /* it has been in a queue */
    bool first_in_line_ = false; /* nobody was before it */
    bool queued_ = false;        /* guarded by the group's message_lock */
    weft_status posted_ = WEFT_OK;
    Header header_{};
    weft_message_info info_{};
    weft_message_info payload_info_{};
    weft_request *first_ = nullptr;
    weft_request *payload_ = nullptr;
    std::array<char, sizeof(Header) + most_short> room_;
};

/* Messages as the library prints them, in the caller's own lengths and tags. */
std::string with_messages_read(const std::string &text);

/* Throws if a gradient came that nothing asks for. */
void check_lost(Group &group);

Outcome run_send(const Args &args, const Tensor &x, Group &group, int64_t mark);
Outcome run_receive(const Args &args, const Tensor &like, Group &group,
                    int64_t mark);
Outcome run_sendrecv(const Args &args, const Tensor &x, Group &group,
                     int64_t mark);

/* The numbers of the two messages of one operation, in one. */
constexpr int64_t message_bits = 24;
constexpr int64_t message_mask = (int64_t(1) << message_bits) - 1;
inline int64_t numbers_in_one(int64_t sent, int64_t received)
{
    return (sent & message_mask) | (received & message_mask) << message_bits;
}
inline int64_t swapped_numbers(int64_t numbers)
{
    return numbers_in_one(numbers >> message_bits, numbers);
}

} // namespace weft_torch::mpi
