/* SPDX-License-Identifier: Apache-2.0 */
/* torch's dispatcher: the operations as it has them.
 *
 * One schema serves all kinds of operations; their arguments are a list (see
 * args.hpp). What an operation tells beside its result is a tensor, too: so it
 * is wherever the result is, in what a selective checkpoint keeps, too. */
#pragma once

#include <torch/library.h>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

constexpr int64_t told_length = 5;

/* Call the operation. What it tells is left in the tensor. */
Outcome dispatched(const Args &args, const Tensor &x, const Group &group,
                   int64_t mark);

/* What a tensor tells of an operation of this communicator; throws if it tells
 * of none. `*which`: the how manieth of its operations that was. */
Told told_by(Tensor numbers, Kind kind, const Group &group, int64_t *which);

/* The operators PREFIX + name, one for each kind. */
template <class Signature> auto find_operators(const std::string &prefix)
{
    std::vector<c10::TypedOperatorHandle<Signature>> all;

    for (int k = 0; k < kinds; k++) {
        std::string name = "weft::" + prefix + name_of(Kind(k));

        all.push_back(c10::Dispatcher::singleton()
                          .findSchemaOrThrow(name.c_str(), "")
                          .template typed<Signature>());
    }
    return all;
}

/* Define them. Kernels has the functions that carry a kind out, and that record
 * its derivatives.
 *
 * The second tag, made for random numbers, is there because the result of a
 * constant is none: a compiler that took it for one would communicate while it
 * traces. */
template <class Kernels, Kind kind>
void define_operator(torch::Library &library, const std::string &name,
                     const char *signature)
{
    using Key = c10::DispatchKey;
    auto plain = &Kernels::template plain<kind>;

    library.def(torch::schema((name + signature).c_str()),
                {at::Tag::pt2_compliant_tag, at::Tag::nondeterministic_seeded});
    library.impl(name.c_str(), torch::dispatch(Key::CPU, plain));
    library.impl(name.c_str(), torch::dispatch(Key::CUDA, plain));
    library.impl(
        name.c_str(),
        torch::dispatch(Key::Autograd, &Kernels::template autograd<kind>));
}

template <class Kernels, int... K>
void define_operators(torch::Library &library, const std::string &prefix,
                      const char *signature, std::integer_sequence<int, K...>)
{
    (define_operator<Kernels, Kind(K)>(library, prefix + name_of(Kind(K)),
                                       signature),
     ...);
}

} // namespace weft_torch::mpi
