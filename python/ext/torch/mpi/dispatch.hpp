/* SPDX-License-Identifier: Apache-2.0 */
/* The operations as operators of torch's dispatcher.
 *
 * All kinds have one schema, with their arguments as a list (see args.hpp). The
 * OpInfo is a second result, a tensor: so whatever keeps the result keeps it,
 * too, as a selective checkpoint does. */
#pragma once

#include <torch/library.h>

#include "mpi/group.hpp"

namespace weft_torch::mpi
{

constexpr int64_t info_length = 5;

/* Call the operator. The OpInfo stays in Outcome::numbers. */
Outcome dispatched(const Args &args, const Tensor &x, const Group &group,
                   int64_t mark);

/* Read an OpInfo from its tensor; throws if it is not of an operation of this
 * communicator. `*which` gets the count of operations at that time. */
OpInfo info_from(Tensor numbers, Kind kind, const Group &group, int64_t *which);

/* Find the operators PREFIX + name, one for each kind. */
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

/* Define one operator. Kernels has the functions that execute a kind and that
 * record its derivatives.
 *
 * The second tag, meant for random numbers, prevents constant folding, by which
 * a compiler would communicate while it traces. */
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
