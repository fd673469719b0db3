/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi/message.hpp"

#include <cstring>
#include <regex>

namespace weft_torch::mpi
{

namespace
{

constexpr uint32_t header_magic = 0x57654d50;
/* A wire tag consists of two bits that no other layer sets together, the
 * payload bit, the order of the derivative, and the caller's tag. */
constexpr uint32_t our_tags = 0xc0000000u;
constexpr uint32_t payload_bit = 0x20000000u;
constexpr int level_shift = 26;
constexpr int64_t levels = 7; /* so that no tag has all bits set */

constexpr int64_t phase_bits = mark_backward | mark_is_tangent;

std::string message_words(int64_t mark)
{
    std::string text = std::to_string(mark & mark_number);

    return (mark & mark_backward) != 0     ? "the gradient of message " + text
           : (mark & mark_is_tangent) != 0 ? "the tangent of message " + text
                                           : "message " + text;
}

/* Error text for derivatives that only the sender records. */
std::string derivatives_of(int64_t flags, int64_t sender, int64_t receiver)
{
    return c10::str(
        "rank ", sender,
        (flags & mark_grads) != 0 ? " records gradients" : " has a tangent",
        " of what it sent, but rank ", receiver,
        " does not; use no_grad, inference mode and transforms of torch.func "
        "alike on both");
}

/* The number of this message, of the two in one operation. */
int64_t own_number(int64_t mark, bool sending)
{
    int64_t numbers = mark & mark_number;

    return sending ? numbers & message_mask : numbers >> message_bits;
}

Letter *first_of(Group &group, uint32_t tag)
{
    std::lock_guard<std::mutex> guard(group.message_lock);
    auto queue = group.queues.find(tag);

    return queue == group.queues.end() ? nullptr : queue->second.front();
}

} // namespace

uint32_t wire_tag(int64_t tag, int64_t level)
{
    return our_tags | uint32_t(level % levels) << level_shift | uint32_t(tag);
}

/* The length of a long message is not in its header. The text may be another
 * rank's, so numbers that are too long are left unchanged. */
std::string with_messages_read(const std::string &text)
{
    static const std::regex message(
        R"(of (\d{1,18}) bytes (to|from) (rank \d+|any rank)(, | \()tag (\d{1,10})\b)");
    std::string result;
    auto rest = text.begin();

    for (std::sregex_iterator at(text.begin(), text.end(), message), none;
         at != none; ++at) {
        uint64_t bytes = std::stoull((*at)[1]);
        uint64_t tag = std::stoull((*at)[5]);
        bool ours = (tag & our_tags) == our_tags;
        bool of_payload = (tag & payload_bit) != 0;

        if (!ours || (!of_payload && bytes < sizeof(Header))) {
            continue;
        }
        bytes -= of_payload ? 0 : sizeof(Header);
        result.append(rest, (*at)[0].first);
        result += bytes > 0 ? "of " + std::to_string(bytes) + " bytes "
                            : "of a message ";
        result += (*at)[2].str() + " " + (*at)[3].str() + (*at)[4].str() +
                  (((tag >> level_shift) & 7) > 0 ? "a gradient, " : "") +
                  "tag " + std::to_string(tag & max_tag);
        rest = (*at)[0].second;
    }
    return result.append(rest, text.end());
}

void check_lost(Group &group)
{
    group.chain->tidy();
    std::string words = group.lost_gradient();

    if (!words.empty()) {
        fail_mpi(WEFT_ERR_MISMATCH, words);
    }
}

Letter::Letter(Group &group, int64_t peer, int64_t tag, int64_t level)
    : group_(group), living_(group.weak_from_this()), peer_(peer), tag_(tag),
      level_(level % levels)
{
}

Letter::~Letter()
{
    if (was_queued_) {
        leave_queue();
    }
    weft_request_release(first_);
    weft_request_release(payload_);
}

uint32_t Letter::wire_tag(bool of_payload) const
{
    return mpi::wire_tag(tag_, level_) | (of_payload ? payload_bit : 0);
}

/* The sender counts forward messages for each rank and tag; a derivative has
 * the number of its message. */
void Letter::write_header(int64_t mark)
{
    if ((mark & phase_bits) != 0) {
        number_ = own_number(mark, true);
    } else {
        std::lock_guard<std::mutex> guard(group_.message_lock);

        number_ = int64_t(++group_.sent[{uint32_t(peer_), wire_tag(false)}]) &
                  message_mask;
    }
    header_ = {header_magic, uint32_t(tensor_.scalar_type()),
               uint64_t(tensor_.nbytes()), (mark & ~mark_number) | number_, 0};
    std::memcpy(room_.data(), &header_, sizeof(header_));
    if (is_short() && tensor_.nbytes() > 0) {
        std::memcpy(room_.data() + sizeof(header_), tensor_.data_ptr(),
                    tensor_.nbytes());
    }
}

void Letter::send(const Tensor &x, int64_t mark, bool waits)
{
    const char *what = waits ? "Send" : "Isend";
    uint32_t to = uint32_t(peer_);

    tensor_ = x;
    write_header(mark);
    size_t n = sizeof(Header) + (is_short() ? tensor_.nbytes() : 0);

    check(either<weft_send, weft_isend>(waits ? nullptr : &first_,
                                        group_.comm(), room_.data(), n, to,
                                        wire_tag(false)),
          what);
    if (!is_short()) {
        check(either<weft_send, weft_isend>(
                  waits ? nullptr : &payload_, group_.comm(),
                  tensor_.data_ptr(), tensor_.nbytes(), to, wire_tag(true)),
              what);
    }
}

void Letter::start_receive(const Tensor &out, int64_t mark)
{
    receives_ = true;
    tensor_ = out;
    expected_ = mark;
    comm_ = group_.comm();
    first_in_queue_ = takes_turn();
    if (first_in_queue_) {
        weft_status status = post();

        if (status != WEFT_OK && was_queued_) {
            leave_queue();
        }
        check(status, "Irecv");
    }
}

/* Is the queue empty before it? */
bool Letter::takes_turn()
{
    std::lock_guard<std::mutex> guard(group_.message_lock);
    auto queue = group_.queues.find(wire_tag(false));

    if (queue == group_.queues.end()) {
        if (!is_long_from_any()) {
            return true;
        }
        queue = group_.queues.emplace(wire_tag(false), 0).first;
    }
    queue->second.push_back(this);
    was_queued_ = queued_ = true;
    return queue->second.size() == 1;
}

void Letter::leave_queue()
{
    std::lock_guard<std::mutex> guard(group_.message_lock);
    auto queue = group_.queues.find(wire_tag(false));

    if (!queued_) {
        return;
    }
    queued_ = false;
    queue->second.remove(this);
    if (queue->second.empty()) {
        group_.queues.erase(queue);
    }
    group_.turn.notify_all();
}

/* The waiter for the first, or the world's thread, drives progress. */
void Letter::await_turn()
{
    if (first_in_queue_) {
        (void)weft_request_wait(first_, 0);
    }
    std::unique_lock<std::mutex> guard(group_.message_lock);

    if (group_.is_of_parent() && queued_) {
        guard.unlock();
        check(weft_comm_error(group_.comm()), "Wait"); /* never its turn */
        return;
    }
    while (!group_.turn.wait_for(guard, std::chrono::milliseconds(100),
                                 [this] { return !queued_; })) {
        guard.unlock();
        check_signals();
        guard.lock();
    }
}

weft_status Letter::post()
{
    bool any = is_long_from_any();
    weft_status status = any ? WEFT_OK : post_payload();

    if (status == WEFT_OK) {
        status =
            weft_irecv(comm_, room_.data(),
                       sizeof(Header) + (is_short() ? tensor_.nbytes() : 0),
                       uint32_t(peer_), wire_tag(false), &info_, &first_);
    }
    if (status == WEFT_OK && any) {
        status = weft_request_on_done(first_, &Letter::header_came, this);
    }
    return status;
}

weft_status Letter::post_payload()
{
    return is_short() ? WEFT_OK
                      : weft_irecv(comm_, tensor_.data_ptr(), tensor_.nbytes(),
                                   uint32_t(peer_), wire_tag(true),
                                   &payload_info_, &payload_);
}

/* Callback for the header of the first in a queue: post the receive of its
 * payload, and then the receives behind it, up to the next one from any rank.
 * If the communicator is broken, all of them fail. */
void Letter::header_came(weft_request *, weft_status status, void *letter)
{
    Letter *first = static_cast<Letter *>(letter);
    GroupPtr group = first->living_.lock();
    uint32_t tag = first->wire_tag(false);
    bool broken = status != WEFT_OK && status != WEFT_ERR_TRUNCATED;

    if (group == nullptr) {
        return; /* the communicator was freed */
    }
    if (status == WEFT_OK) {
        first->peer_ = first->info_.from;
        first->posted_ = first->post_payload();
    }
    first->leave_queue(); /* it may be destroyed after that */
    while ((first = first_of(*group, tag)) != nullptr) {
        bool any = first->is_long_from_any();

        status = broken ? status : first->post();
        if (any && status == WEFT_OK) {
            return; /* the callback of its header continues */
        }
        first->posted_ = status;
        first->leave_queue();
    }
}

bool Letter::done()
{
    int done = 1;

    if (was_queued_) {
        std::lock_guard<std::mutex> guard(group_.message_lock);

        if (queued_) {
            return group_.is_of_parent();
        }
    }
    if (first_ != nullptr) {
        (void)weft_request_test(first_, &done);
    }
    if (done != 0 && payload_ != nullptr) {
        (void)weft_request_test(payload_, &done);
    }
    return done != 0;
}

void Letter::wait(const char *what)
{
    if (was_queued_) {
        await_turn();
    }
    if (posted_ != WEFT_OK) { /* fail again, for the error text */
        comm_ = group_.comm();
        check(first_ == nullptr ? post() : posted_, what);
    }
    weft_status status =
        first_ != nullptr ? weft_request_wait(first_, 0) : WEFT_OK;

    if (receives_ && (status == WEFT_OK || status == WEFT_ERR_TRUNCATED)) {
        check_header(what, info_.n);
        status = WEFT_OK;
    }
    check(status, what);
    if (payload_ != nullptr) {
        status = weft_request_wait(payload_, 0);
        if (receives_ && (status == WEFT_OK || status == WEFT_ERR_TRUNCATED)) {
            check_payload(what);
        }
        check(status, what);
    } else if (receives_ && tensor_.nbytes() > 0) {
        std::memcpy(tensor_.data_ptr(), room_.data() + sizeof(Header),
                    tensor_.nbytes());
    }
}

/* Add what the caller knows, since the library sees only bytes. */
void Letter::check(weft_status status, const char *what) const
{
    if (status == WEFT_OK) {
        return;
    }
    std::string peer =
        peer_ == any_rank ? "any rank" : "rank " + std::to_string(peer_);

    check_mpi(status, c10::str(what, level_ > 0 ? " of a gradient, " : " of ",
                               tensor_.scalar_type(), " ", tensor_.sizes(),
                               receives_ ? ", from " : ", to ", peer,
                               " with tag ", tag_)
                          .c_str());
}

/* An unexpected message breaks the communicator on all ranks, because its
 * payload could not be distinguished from that of later messages. */
void Letter::check_header(const char *what, size_t came)
{
    int64_t phase = expected_ & phase_bits;
    std::string wrong;

    peer_ = info_.from;
    if (came >= sizeof(Header)) {
        std::memcpy(&header_, room_.data(), sizeof(Header));
    }
    number_ =
        phase != 0 ? own_number(expected_, false) : header_.mark & mark_number;
    if (came < sizeof(Header) || header_.magic != header_magic) {
        wrong = "was not sent by weft.mpi";
    } else if ((header_.mark & phase_bits) != phase ||
               (header_.mark & mark_number) != number_) {
        wrong = "is " + message_words(header_.mark) + ", but " +
                message_words(phase | number_) +
                " was expected; both ranks must call the same operations in "
                "the same order";
    } else if (header_.type != uint32_t(tensor_.scalar_type()) ||
               header_.bytes != tensor_.nbytes()) {
        wrong =
            c10::str("has ", header_.bytes, " bytes of ",
                     at::ScalarType(header_.type), ", but ", tensor_.nbytes(),
                     " bytes of ", tensor_.scalar_type(), " were expected");
    } else if (came != sizeof(Header) + (is_short() ? tensor_.nbytes() : 0)) {
        wrong = c10::str("is malformed: it has ", came,
                         " bytes, but its header says ", header_.bytes);
    } else if (int64_t alone =
                   header_.mark & ~expected_ & (mark_grads | mark_tangents)) {
        wrong =
            "cannot be received: " + derivatives_of(alone, peer_, group_.rank);
    }
    if (!wrong.empty()) {
        refuse(what, wrong);
    }
}

/* The header was checked before. */
void Letter::check_payload(const char *what)
{
    if (payload_info_.n != tensor_.nbytes()) {
        refuse(what,
               c10::str("is malformed: its header says ", tensor_.nbytes(),
                        " bytes, but ", payload_info_.n, " came"));
    }
}

void Letter::refuse(const char *what, const std::string &wrong)
{
    std::string text = c10::str("weft.mpi ", what, ": on rank ", group_.rank,
                                ", the message from rank ", peer_, " with tag ",
                                tag_, " ", wrong);

    weft_comm_abort(group_.comm(), text.c_str());
    fail_mpi(WEFT_ERR_MISMATCH, text);
}

} // namespace weft_torch::mpi
