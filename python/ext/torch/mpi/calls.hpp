/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls: they check arguments, exchange lengths that only other
 * ranks know, and call the operations. */
#pragma once

#include "mpi/handle.hpp"

namespace weft_torch::mpi
{

/* An operation with all its arguments. */
struct Call {
    Args args;
    Tensor x;
};
using Counts = std::optional<Numbers>;

/* Throws if a rank, a tag or a reduction is out of range. */
void check_call(const Args &args, const Group &group);

/* Make a call whose arguments the user gives in the order of `fields`. */
template <auto... fields> auto plain_call(Kind kind)
{
    return [kind](Group &, const Tensor &x, const auto &...given) {
        Call call{{kind}, x};

        ((call.args.*fields = given), ...);
        return call;
    };
}
Call allreduce_call(Group &group, const Tensor &x, int64_t op);
Call gather_call(Group &group, const Tensor &x, int64_t axis, int64_t root);
Call gatherv_call(Group &group, const Tensor &x, int64_t axis, int64_t root,
                  const Counts &counts);
Call allgather_call(Group &group, const Tensor &x, int64_t axis);
Call allgatherv_call(Group &group, const Tensor &x, int64_t axis,
                     const Counts &counts);
/* `own` is the number of slices for this rank; -1 divides them equally. */
Call scatter_call(Group &group, const Tensor &x, int64_t axis, int64_t own,
                  int64_t root);
Call reduce_scatter_call(Group &group, const Tensor &x, int64_t op,
                         const Counts &counts, int64_t axis);
Call alltoall_call(Group &group, const Tensor &x, int64_t gather_axis,
                   int64_t scatter_axis);
Call alltoallv_call(Group &group, const Tensor &x, const Numbers &sent,
                    const Counts &received, int64_t gather_axis,
                    int64_t scatter_axis);
Call repartition_call(Group &group, const Tensor &x, int64_t axis, int64_t own);
template <Kind kind> Call scan_call(Group &group, const Tensor &x, int64_t op);
Call join_call(Group &group, const Tensor &x);
Call send_call(Group &group, const Tensor &x, int64_t to, int64_t tag);
Call sendrecv_call(Group &group, const Tensor &x, int64_t to, int64_t send_tag,
                   const Tensor &like, int64_t from, int64_t receive_tag);

/* Execute a call, or start it. */
Tensor carry_out(const GroupPtr &group, const Call &call);
std::shared_ptr<Handle> start(const GroupPtr &group, const Call &call);

} // namespace weft_torch::mpi
