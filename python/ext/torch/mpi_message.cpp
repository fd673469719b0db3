/* SPDX-License-Identifier: Apache-2.0 */
#include "mpi_message.hpp"

#include <cstring>

namespace weft_torch::mpi
{

namespace
{

constexpr uint32_t header_magic = 0x57654d50;
/* Tags on the wire: two bits that no other layer uses together, whether it is a
 * payload, which derivative, and the caller's tag. */
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

/* The message's own number, of the two an operation has. */
int64_t own_number(int64_t mark, bool sending)
{
    int64_t numbers = mark & mark_number;

    return sending ? numbers & message_mask : numbers >> message_bits;
}

} // namespace

LastMessage &last_message()
{
    static thread_local LastMessage last;

    return last;
}

Letter::Letter(Group &group, int64_t peer, int64_t tag, int64_t level)
    : group_(group), peer_(peer), tag_(tag), level_(level % levels)
{
}

Letter::~Letter()
{
    weft_request_release(first_);
    weft_request_release(payload_);
}

uint32_t Letter::wire_tag(bool of_payload) const
{
    return our_tags | (of_payload ? payload_bit : 0) |
           uint32_t(level_) << level_shift | uint32_t(tag_);
}

/* Forward messages are counted for each rank and tag; what belongs to one has
 * its number. */
int64_t Letter::numbered(int64_t mark, bool sending)
{
    int64_t flags = mark & ~mark_number;

    if ((mark & phase_bits) != 0) {
        number_ = own_number(mark, sending);
    } else {
        std::lock_guard<std::mutex> guard(group_.message_lock);
        auto &counts = sending ? group_.sent : group_.received;

        number_ = int64_t(++counts[{uint32_t(peer_), wire_tag(false)}]) &
                  message_mask;
    }
    return flags | number_;
}

void Letter::write_header(int64_t mark)
{
    header_ = {header_magic, uint32_t(tensor_.scalar_type()),
               uint64_t(tensor_.nbytes()), numbered(mark, true), 0};
    std::memcpy(room_.data(), &header_, sizeof(header_));
    if (is_short() && tensor_.nbytes() > 0) {
        std::memcpy(room_.data() + sizeof(header_), tensor_.data_ptr(),
                    tensor_.nbytes());
    }
}

void Letter::start_send(const Tensor &x, int64_t mark)
{
    tensor_ = x;
    write_header(mark);
    size_t n = sizeof(Header) + (is_short() ? tensor_.nbytes() : 0);

    check_mpi(weft_isend(group_.comm(), room_.data(), n, uint32_t(peer_),
                         wire_tag(false), &first_),
              "Isend");
    if (!is_short()) {
        check_mpi(weft_isend(group_.comm(), tensor_.data_ptr(),
                             tensor_.nbytes(), uint32_t(peer_), wire_tag(true),
                             &payload_),
                  "Isend");
    }
}

void Letter::send(const Tensor &x, int64_t mark)
{
    tensor_ = x;
    write_header(mark);
    size_t n = sizeof(Header) + (is_short() ? tensor_.nbytes() : 0);

    check_mpi(weft_send(group_.comm(), room_.data(), n, uint32_t(peer_),
                        wire_tag(false)),
              "Send");
    if (!is_short()) {
        check_mpi(weft_send(group_.comm(), tensor_.data_ptr(), tensor_.nbytes(),
                            uint32_t(peer_), wire_tag(true)),
                  "Send");
    }
}

/* From any rank the payload can only be asked for once the header is there. */
void Letter::start_receive(const Tensor &out, int64_t mark)
{
    receives_ = true;
    tensor_ = out;
    expected_ = mark;
    if (peer_ != any_rank) {
        expected_ = numbered(mark, false);
        post_payload();
    }
    check_mpi(weft_irecv(group_.comm(), room_.data(),
                         sizeof(Header) + (is_short() ? out.nbytes() : 0),
                         uint32_t(peer_), wire_tag(false), &info_, &first_),
              "Irecv");
}

void Letter::post_payload()
{
    if (!is_short()) {
        check_mpi(weft_irecv(group_.comm(), tensor_.data_ptr(),
                             tensor_.nbytes(), uint32_t(peer_), wire_tag(true),
                             nullptr, &payload_),
                  "Irecv");
    }
}

bool Letter::done()
{
    int done = 1;

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
    weft_status status =
        first_ != nullptr ? weft_request_wait(first_, 0) : WEFT_OK;

    if (receives_ && (status == WEFT_OK || status == WEFT_ERR_TRUNCATED)) {
        check_header(what, info_.n);
        status = WEFT_OK;
    }
    check_mpi(status, what);
    if (payload_ != nullptr) {
        check_mpi(weft_request_wait(payload_, 0), what);
    } else if (receives_ && tensor_.nbytes() > 0) {
        std::memcpy(tensor_.data_ptr(), room_.data() + sizeof(Header),
                    tensor_.nbytes());
    }
}

/* A message that is not the expected one breaks the communicator on all ranks:
 * what belongs to it could never be told apart from what comes later. */
void Letter::check_header(const char *what, size_t came)
{
    bool any = peer_ == any_rank;
    int64_t phase = expected_ & phase_bits;
    std::string wrong;

    peer_ = info_.from;
    if (came >= sizeof(Header)) {
        std::memcpy(&header_, room_.data(), sizeof(Header));
    }
    if (any) {
        expected_ = numbered(expected_, false);
    }
    if (came < sizeof(Header) || header_.magic != header_magic) {
        wrong = "is not a message of weft.mpi";
    } else if ((header_.mark & phase_bits) != phase ||
               (header_.mark & mark_number) != number_) {
        wrong = "is " + message_words(header_.mark) + ", but " +
                message_words(phase | number_) +
                " was expected: the ranks' operations are not in the same "
                "order, or not the same";
    } else if (header_.type != uint32_t(tensor_.scalar_type()) ||
               header_.bytes != tensor_.nbytes()) {
        wrong = "has " + std::to_string(header_.bytes) + " bytes of " +
                c10::toString(at::ScalarType(header_.type)) + ", but " +
                std::to_string(tensor_.nbytes()) + " bytes of " +
                c10::toString(tensor_.scalar_type()) + " were expected";
    }
    if (!wrong.empty()) {
        std::string text = "weft.mpi " + std::string(what) + ": on rank " +
                           std::to_string(group_.rank) +
                           ", what came from rank " + std::to_string(peer_) +
                           " with tag " + std::to_string(tag_) + " " + wrong;

        weft_comm_abort(group_.comm(), text.c_str());
        fail_mpi(WEFT_ERR_MISMATCH, text);
    }
    if (any) {
        post_payload();
    }
}

Tensor run_send(const Tensor &x, Group &group, int64_t mark, IntArrayRef args)
{
    auto letter = std::make_unique<Letter>(group, args[0], args[1], args[2]);

    if (args[3] != 0) { /* nobody waits for it */
        Tensor copy = plain(x);

        letter->start_send(copy.is_alias_of(x) ? copy.clone() : copy, mark);
        last_message().numbers = numbers_in_one(letter->number(), 0);
        group.keep(std::move(letter));
    } else {
        letter->send(plain(x), mark);
        last_message().numbers = numbers_in_one(letter->number(), 0);
    }
    return at::empty({0}, x.options());
}

/* A letter that is kept, whatever happens, until the library is done with it.
 */
class Held
{
  public:
    Held(Group &group, int64_t peer, int64_t tag, int64_t level)
        : group_(group),
          letter_(std::make_unique<Letter>(group, peer, tag, level))
    {
    }
    ~Held()
    {
        group_.keep(std::move(letter_));
    }
    Letter *operator->() const
    {
        return letter_.get();
    }

  private:
    Group &group_;
    std::unique_ptr<Letter> letter_;
};

Tensor run_receive(const Tensor &like, Group &group, int64_t mark,
                   IntArrayRef args)
{
    Tensor out =
        group.memory->empty(like.sizes(), like.options().device(at::kCPU));
    Held letter(group, args[0], args[1], args[2]);

    letter->start_receive(out, mark);
    letter->wait("Recv");
    last_message().numbers = numbers_in_one(0, letter->number());
    last_message().mark = letter->mark();
    last_message().peer = letter->peer();
    return like.is_cpu() ? out : out.to(like.device());
}

Tensor run_sendrecv(const Tensor &x, Group &group, int64_t mark,
                    IntArrayRef args)
{
    Tensor out =
        group.memory->empty(args.slice(5), x.options().device(at::kCPU));
    Held in(group, args[2], args[3], args[4]);
    Held away(group, args[0], args[1], args[4]);

    in->start_receive(out, mark);
    away->start_send(plain(x), mark);
    in->wait("Sendrecv");
    away->wait("Sendrecv");
    last_message().numbers = numbers_in_one(away->number(), in->number());
    last_message().mark = in->mark();
    last_message().peer = in->peer();
    return x.is_cpu() ? out : out.to(x.device());
}

} // namespace weft_torch::mpi
