/* SPDX-License-Identifier: Apache-2.0 */
/* The Python binding: the base class of weft.mpi.Comm. Its methods have the
 * names of MPI's functions and are documented in python/weft/mpi/_comm.py. */
#include "mpi/bind.hpp"

#include <cctype>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "mpi/calls.hpp"

namespace weft_torch::mpi
{

namespace
{

namespace py = pybind11;
using NoGil = py::call_guard<py::gil_scoped_release>;

/* A communicator that a Python program holds. While there is none, only the
 * order of nodes matters, not that of operations. */
class Comm
{
  public:
    explicit Comm(py::object group_comm)
        : group_(Group::with_comm(std::move(group_comm)))
    {
        group_->owners++;
    }
    Comm(const Comm &) = delete;
    Comm &operator=(const Comm &) = delete;
    ~Comm()
    {
        if (--group_->owners == 0) {
            py::gil_scoped_release no_gil;

            group_->chain->clear();
        }
    }
    const GroupPtr &group() const
    {
        return group_;
    }

  private:
    GroupPtr group_;
};

int64_t op_named(const std::string &name)
{
    for (int64_t op = 0; op <= WEFT_OP_MAXLOC; op++) {
        if (name == weft_op_name(weft_op_kind(op))) {
            return op;
        }
    }
    TORCH_CHECK_VALUE(false, "weft.mpi: ", name, " is not a reduction");
}

/* A reduction as a number, a name, or a weft.Op. */
int64_t op_of(const py::object &op)
{
    if (PyLong_Check(op.ptr())) {
        return op.cast<int64_t>();
    }
    py::object name =
        py::isinstance<py::str>(op) ? op : py::getattr(op, "name", py::none());

    TORCH_CHECK_TYPE(py::isinstance<py::str>(name), "weft.mpi: op is a ",
                     std::string(py::str(py::type::of(op))),
                     "; it must be a reduction such as weft.mpi.SUM. "
                     "Results are returned, not written into an argument");
    return op_named(name.cast<std::string>());
}

void translate(std::exception_ptr error)
{
    if (error) {
        torch::translate_exception_to_python(error);
    }
}

/* "Iallreduce" for "Allreduce". */
std::string name_of_start(const char *name)
{
    return std::string("I") + char(std::tolower(name[0])) + (name + 1);
}

/* Convert an argument; only a reduction needs Python. */
template <class T> const T &value_of(const T &argument)
{
    return argument;
}
int64_t value_of(const py::object &op)
{
    return op_of(op);
}

/* A method that makes a call, and executes or starts it. */
template <class... Given, class Make, class How> auto method(Make make, How how)
{
    return
        [make, how](const Comm &self, const Tensor &x, const Given &...given) {
            return std::apply(
                [&](const auto &...values) {
                    py::gil_scoped_release no_gil;

                    return how(self.group(), make(*self.group(), x, values...));
                },
                std::make_tuple(value_of(given)...));
        };
}

template <class... Given, class Class, class Make, class... Names>
void def_both(Class &cls, const char *name, Make make, const Names &...names)
{
    std::string other = name_of_start(name);

    cls.def(name, method<Given...>(make, &carry_out), py::arg("x"), names...);
    cls.def(other.c_str(), method<Given...>(make, &start), py::arg("x"),
            names...);
}

using CommClass = py::class_<Comm, std::shared_ptr<Comm>>;

void bind_reductions(CommClass &cls)
{
    using py::arg;
    const py::arg_v op = arg("op") = int64_t(WEFT_OP_SUM);

    def_both<py::object>(cls, "Allreduce", &allreduce_call, op);
    def_both<py::object, int64_t>(
        cls, "Reduce", plain_call<&Args::op, &Args::root>(Kind::Reduce), op,
        arg("root") = 0);
    def_both<py::object, int64_t>(
        cls, "Reduce_scatter",
        [](Group &g, const Tensor &x, int64_t number, int64_t axis) {
            return reduce_scatter_call(g, x, number, std::nullopt, axis);
        },
        op, arg("axis") = 0);
    def_both<py::object>(cls, "Scan", &scan_call<Kind::Scan>, op);
    def_both<py::object>(cls, "Exscan", &scan_call<Kind::Exscan>, op);
    def_both<py::object, Counts, int64_t>(cls, "_Reduce_scatterv",
                                          &reduce_scatter_call, op,
                                          arg("counts"), arg("axis") = 0);
}

void bind_moves(CommClass &cls)
{
    using py::arg;

    def_both<int64_t>(cls, "Bcast", plain_call<&Args::root>(Kind::Bcast),
                      arg("root") = 0);
    def_both<int64_t, int64_t>(cls, "Gather", &gather_call, arg("axis") = 0,
                               arg("root") = 0);
    def_both<int64_t, int64_t, Counts>(cls, "Gatherv", &gatherv_call,
                                       arg("axis") = 0, arg("root") = 0,
                                       arg("counts") = py::none());
    def_both<int64_t>(cls, "Allgather", &allgather_call, arg("axis") = 0);
    def_both<int64_t, Counts>(cls, "Allgatherv", &allgatherv_call,
                              arg("axis") = 0, arg("counts") = py::none());
    def_both<int64_t, int64_t>(
        cls, "Scatter",
        [](Group &g, const Tensor &x, int64_t axis, int64_t root) {
            return scatter_call(g, x, axis, -1, root);
        },
        arg("axis") = 0, arg("root") = 0);
    def_both<int64_t, int64_t, int64_t>(cls, "Scatterv", &scatter_call,
                                        arg("axis"), arg("numelem"),
                                        arg("root") = 0);
    def_both<int64_t, int64_t>(cls, "Alltoall", &alltoall_call,
                               arg("gatheraxis") = 0, arg("scatteraxis") = 0);
    def_both<Numbers, Counts, int64_t, int64_t>(
        cls, "Alltoallv", &alltoallv_call, arg("sendcounts"),
        arg("recvcounts") = py::none(), arg("gatheraxis") = 0,
        arg("scatteraxis") = 0);
    def_both<int64_t, int64_t>(cls, "Repartition", &repartition_call,
                               arg("axis"), arg("numelem"));
}

void bind_messages(CommClass &cls)
{
    using py::arg;

    def_both<int64_t, int64_t>(cls, "Send", &send_call, arg("dest"),
                               arg("tag") = 0);
    def_both<int64_t, int64_t>(cls, "Recv",
                               plain_call<&Args::peer, &Args::tag>(Kind::Recv),
                               arg("source"), arg("tag") = 0);
    def_both<int64_t, int64_t, Tensor, int64_t, int64_t>(
        cls, "Sendrecv", &sendrecv_call, arg("dest"), arg("sendtag"),
        arg("like"), arg("source"), arg("recvtag"));
}

void bind_rest(CommClass &cls)
{
    using py::arg;

    cls.def("Barrier",
            [](const Comm &self) {
                py::gil_scoped_release no_gil;

                carry_out(self.group(), {{Kind::Barrier}, at::empty({0})});
            })
        .def("Ibarrier",
             [](const Comm &self) {
                 py::gil_scoped_release no_gil;

                 return start(self.group(), {{Kind::Barrier}, at::empty({0})});
             })
        .def("_halo",
             method<Numbers, Numbers, Numbers, Numbers, Numbers>(
                 plain_call<&Args::axes, &Args::low, &Args::high, &Args::below,
                            &Args::above>(Kind::Halo),
                 &carry_out),
             arg("x"), arg("axes"), arg("low"), arg("high"), arg("below"),
             arg("above"))
        .def("Replicate", method<>(plain_call<>(Kind::Replicate), &carry_out),
             arg("x"))
        .def("join", method<>(&join_call, &carry_out), arg("x"))
        .def(
            "Wait", [](const Comm &, Handle &handle) { return handle.wait(); },
            arg("handle"), NoGil());
}

void bind_state(CommClass &cls)
{
    cls.def(py::init<py::object>(), py::arg("group_comm"))
        .def_property_readonly(
            "rank", [](const Comm &self) { return self.group()->rank; })
        .def_property_readonly(
            "size", [](const Comm &self) { return self.group()->size; })
        .def_property_readonly(
            "_id", [](const Comm &self) { return self.group()->id; })
        .def_property_readonly(
            "_is_open",
            [](const Comm &self) { return self.group()->is_open(); })
        .def_property_readonly(
            "_number", [](const Comm &self) { return self.group()->number; })
        .def_property(
            "_replicated",
            [](const Comm &self) { return self.group()->replicated; },
            [](const Comm &self, bool on) { self.group()->replicated = on; })
        .def_property_readonly(
            "history",
            [](const Comm &self) { return self.group()->chain->length(); })
        .def("_set_history_limit",
             [](const Comm &self, size_t nodes) {
                 self.group()->chain->set_limit(nodes);
             })
        .def(
            "detach_history",
            [](const Comm &self) { self.group()->chain->clear(); }, NoGil())
        .def(
            "_lost_gradient",
            [](const Comm &self) { return self.group()->lost_gradient(); },
            NoGil())
        .def_property_readonly(
            "_cached",
            [](const Comm &self) { return self.group()->memory->kept(); })
        .def("_set_cache_limit",
             [](const Comm &self, size_t bytes) {
                 self.group()->memory->set_limit(bytes);
             })
        .def(
            "_drain",
            [](const Comm &self, double seconds) {
                return self.group()->drain(seconds);
            },
            NoGil())
        .def(
            "_close", [](const Comm &self) { self.group()->close(); }, NoGil());
}

} // namespace

void bind_mpi(py::module_ &module)
{
    py::register_local_exception_translator(&translate);
    CommClass cls(module, "MpiComm", py::dynamic_attr());

    bind_state(cls);
    bind_reductions(cls);
    bind_moves(cls);
    bind_messages(cls);
    bind_rest(cls);
    py::class_<Handle, std::shared_ptr<Handle>>(module, "MpiHandle")
        .def("wait", &Handle::wait, NoGil(),
             "Wait for the result; allowed once.")
        .def("test", &Handle::test, NoGil(), "Would wait() return at once?");
    bind_trace(module);
}

} // namespace weft_torch::mpi
