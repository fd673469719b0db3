/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between two ranks, each with a header that describes it: so a
 * receive can report that it got another message than expected, and learns
 * whether the sender records gradients. */
#pragma once

#include <array>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

constexpr int64_t no_rank = -1; /* MPI's PROC_NULL */
constexpr int64_t any_rank = WEFT_ANY_SOURCE;
constexpr int64_t max_tag = (int64_t(1) << 26) - 1;

/* The tag of a message or of its derivative in the library. */
uint32_t wire_tag(int64_t tag, int64_t level);

/* Begins every message. */
struct Header {
    uint32_t magic;
    uint32_t type; /* at::ScalarType */
    uint64_t bytes;
    int64_t mark;
    uint64_t zero;
};
static_assert(sizeof(Header) == 32, "sent as bytes");

/* An outstanding message. A short one is sent with its header; a long one
 * follows its header under another tag, without a copy of the tensor. Both
 * sides know the length, so both know which it is.
 *
 * A receive of a long message from any rank learns the source from the header,
 * and only then can whoever drives progress post the receive of its payload.
 * Until then all later receives with that tag wait in a queue, or they would
 * match that payload. This delays none of them: none could get a message before
 * the first one. */
class Letter : public Pending
{
  public:
    Letter(Group &group, int64_t peer, int64_t tag, int64_t level);
    /* The message that `args` sends, or the only one it has. */
    Letter(Group &group, const Args &args)
        : Letter(group, args.peer, args.tag, args.level)
    {
    }
    ~Letter() override;
    Letter(const Letter &) = delete;
    Letter &operator=(const Letter &) = delete;

    /* The tensors are plain; the Letter holds them. A derivative has the number
     * of its message in its mark; any other message gets the next number. */
    void send(const Tensor &x, int64_t mark, bool waits);
    void start_receive(const Tensor &out, int64_t mark);

    void wait(const char *what);
    bool done() override;
    bool sends() const override
    {
        return !receives_;
    }

    int64_t peer() const /* once received: the source */
    {
        return peer_;
    }
    int64_t number() const
    {
        return number_;
    }
    int64_t mark() const /* once received: as it was sent */
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
    const std::weak_ptr<Group> living_; /* for late callbacks */
    weft_comm *comm_ = nullptr;
    int64_t peer_;
    const int64_t tag_;
    const int64_t level_;
    Tensor tensor_;
    int64_t expected_ = 0; /* the mark that a receive requires */
    int64_t number_ = 0;
    bool receives_ = false;
    bool was_queued_ = false;     /* it has been in a queue once */
    bool first_in_queue_ = false; /* the queue was empty */
    bool queued_ = false;         /* guarded by the group's message_lock */
    weft_status posted_ = WEFT_OK;
    Header header_{};
    weft_message_info info_{};
    weft_message_info payload_info_{};
    weft_request *first_ = nullptr;
    weft_request *payload_ = nullptr;
    std::array<char, sizeof(Header) + most_short> room_;
};

/* An error text of the library, with the caller's lengths and tags. */
std::string with_messages_read(const std::string &text);

/* Throws if a gradient arrived that no backward will receive. */
void check_lost(Group &group);

Outcome run_send(const Args &args, const Tensor &x, Group &group, int64_t mark);
Outcome run_receive(const Args &args, const Tensor &like, Group &group,
                    int64_t mark);
Outcome run_sendrecv(const Args &args, const Tensor &x, Group &group,
                     int64_t mark);

/* The numbers of the two messages of one operation, packed into one. */
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
