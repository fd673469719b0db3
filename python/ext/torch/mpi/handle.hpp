/* SPDX-License-Identifier: Apache-2.0 */
/* Nonblocking operations.
 *
 * For the backward pass each is two nodes:
 *
 *     forward    start ....... wait
 *     backward   wait's node starts the adjoint, start's node waits for it
 *
 * so that what overlapped in the forward pass overlaps again. */
#pragma once

#include "mpi/autograd.hpp"

namespace weft_torch::mpi
{

class Handle
{
  public:
    static std::shared_ptr<Handle> start(const Args &args, const Tensor &x,
                                         const GroupPtr &group, int64_t mark);
    ~Handle();
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;

    /* Wait for the result; allowed once. */
    Tensor wait();
    /* Would wait() return at once? */
    bool test();

    /* State that start's node and wait's node share. */
    struct Return {
        Record record;
        bool known = true; /* there will be a gradient */
        bool over = false; /* start's node has run and will not run again */
        NodeWeak wait = no_node();
        std::shared_ptr<Handle> adjoint;

        explicit Return(Record record_) : record(std::move(record_))
        {
        }
        void begin(const Tensor &gradient);
        Tensor finish();
    };

  private:
    Handle(Args args, const Tensor &x, GroupPtr group, int64_t mark);
    void start_now(const Tensor &x);
    bool records(const Tensor &x) const;
    void record(const Tensor &x);
    Tensor finish_receive();
    void add_node(const Tensor &y);

    const Args args_;
    const GroupPtr group_;
    const int64_t mark_;
    int64_t number_ = 0; /* see OpInfo */
    Tensor x_;           /* borrowed by the library; of a receive, `like` */
    Tensor ready_;
    bool deferred_ = false; /* it is executed by wait() */
    bool waited_ = false;
    std::unique_ptr<Pending> pending_;
    std::shared_ptr<Return> return_;
    NodePtr node_;
};

} // namespace weft_torch::mpi
