/* SPDX-License-Identifier: Apache-2.0 */
/* The token for compiled code: the attribute `token` of an object.
 *
 * It is a CPython attribute with a getter. torch.compile reads it again
 * whenever compiled code is about to run, so the getter can link the code into
 * the order. */
#include "mpi/token.hpp"

#include <torch/csrc/autograd/python_variable.h>

#include "mpi/bind.hpp"
#include "mpi/dispatch.hpp"

namespace weft_torch::mpi
{

namespace
{

struct TokenObject {
    PyObject_HEAD
    std::weak_ptr<Group> *group;
};

PyObject *get_token(PyObject *self, void *)
{
    GroupPtr group = reinterpret_cast<TokenObject *>(self)->group->lock();

    if (!group) {
        PyErr_SetString(PyExc_ValueError,
                        "weft.mpi: this communicator was freed");
        return nullptr;
    }
    try {
        return THPVariable_Wrap(group->chain->token()->begin(group));
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
}

void free_token_object(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    delete reinterpret_cast<TokenObject *>(self)->group;
    type->tp_free(self);
    Py_DECREF(type);
}

PyTypeObject *token_type()
{
    static PyGetSetDef attributes[] = {
        {"token", &get_token, nullptr, nullptr, nullptr},
        {nullptr, nullptr, nullptr, nullptr, nullptr}};
    static PyType_Slot slots[] = {
        {Py_tp_getset, attributes},
        {Py_tp_dealloc, reinterpret_cast<void *>(&free_token_object)},
        {0, nullptr}};
    static PyType_Spec spec = {"weft.mpi.Order", sizeof(TokenObject), 0,
                               Py_TPFLAGS_DEFAULT, slots};
    static PyObject *type = PyType_FromSpec(&spec);

    return reinterpret_cast<PyTypeObject *>(type);
}

pybind11::object order_of(int64_t comm)
{
    PyTypeObject *type = token_type();
    PyObject *self = type != nullptr ? type->tp_alloc(type, 0) : nullptr;

    if (self == nullptr) {
        throw pybind11::error_already_set();
    }
    reinterpret_cast<TokenObject *>(self)->group =
        new std::weak_ptr<Group>(Group::by_id(comm));
    return pybind11::reinterpret_steal<pybind11::object>(self);
}

using Lengths = List<SymInt>;

/* The lengths as numbers, if none is symbolic. */
std::optional<Numbers> all_known(const Lengths &lengths)
{
    Numbers numbers;

    for (const c10::SymInt &length : lengths) {
        std::optional<int64_t> number = length.maybe_as_int();

        if (!number) {
            return std::nullopt;
        }
        numbers.push_back(*number);
    }
    return numbers;
}

/* Wrong counts are reported here, where the call is known, and not by the
 * shapes of gradients. Those of a scatter come from the root's tensor and are
 * exchanged when it runs. */
Lengths shape_of_result(const std::string &name, const Lengths &x, int64_t comm,
                        const Lengths &list)
{
    Kind kind = kind_named(name);
    GroupPtr group = Group::by_id(comm);
    std::optional<Numbers> shape = all_known(x);
    std::optional<Numbers> numbers = all_known(list);

    if (shape && numbers && kind != Kind::Scatter) {
        check_counts(unpacked(kind, IntArrayRef(*numbers), group->size), *shape,
                     *group);
    }
    return result_shape(unpacked(kind, Slice<SymInt>(list), group->size),
                        Slice<SymInt>(x), *group);
}

/* The argument list of an operation on a batch. */
Lengths with_batch(const std::string &name, int64_t comm, const Lengths &list,
                   const SymInt &batch)
{
    return packed(batched(unpacked(kind_named(name), Slice<SymInt>(list),
                                   Group::by_id(comm)->size),
                          batch));
}

} // namespace

void bind_trace(pybind11::module_ &module)
{
    pybind11::dict arguments;

    for (int k = 0; k < kinds; k++) {
        arguments[name_of(Kind(k))] =
            pybind11::tuple(pybind11::cast(argument_names(Kind(k))));
    }
    module.attr("mpi_arguments") = arguments;
    module.attr("mpi_info_length") = info_length;
    module.attr("mpi_mark_grad") = mark_grad;
    module.def("mpi_has_derivative", &has_derivative);
    module.def("mpi_order", &order_of);
    module.def("mpi_shape", &shape_of_result);
    module.def("mpi_with_batch", &with_batch);
}

} // namespace weft_torch::mpi
