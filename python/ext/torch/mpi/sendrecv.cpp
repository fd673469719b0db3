/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that send or receive messages. */
#include "mpi/message.hpp"

namespace weft_torch::mpi
{

namespace
{

/* Owns a letter and keeps it until the library is done with it. */
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

} // namespace

Outcome run_send(const Args &args, const Tensor &x, Group &group, int64_t mark)
{
    auto letter = std::make_unique<Letter>(group, args);
    Tensor memory = plain(x);

    if (args.lazy != 0 && memory.is_alias_of(x)) {
        memory = memory.clone();
    }
    letter->send(memory, mark, args.lazy == 0);
    OpInfo info{numbers_in_one(letter->number(), 0)};

    if (args.lazy != 0) {
        group.keep(std::move(letter));
    }
    return {at::empty({0}, x.options()), info};
}

Outcome run_receive(const Args &args, const Tensor &like, Group &group,
                    int64_t mark)
{
    Tensor out =
        group.memory->empty(like.sizes(), like.options().device(at::kCPU));
    Held letter(group, args.peer, args.tag, args.level);

    letter->start_receive(out, mark);
    letter->wait("Recv");
    return {
        like.is_cpu() ? out : out.to(like.device()),
        {numbers_in_one(0, letter->number()), letter->mark(), letter->peer()}};
}

Outcome run_sendrecv(const Args &args, const Tensor &x, Group &group,
                     int64_t mark)
{
    Tensor out = group.memory->empty(args.shape, x.options().device(at::kCPU));
    Held in(group, args.source, args.source_tag, args.level);
    Held away(group, args.peer, args.tag, args.level);

    in->start_receive(out, mark);
    away->send(plain(x), mark, false);
    in->wait("Sendrecv");
    away->wait("Sendrecv");
    return {
        x.is_cpu() ? out : out.to(x.device()),
        {numbers_in_one(away->number(), in->number()), in->mark(), in->peer()}};
}

} // namespace weft_torch::mpi
