/* SPDX-License-Identifier: Apache-2.0 */
/* The Python module. What users see of it is in python/weft/torch. */
#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "backend.hpp"
#include "mpi/bind.hpp"
#include "shared.hpp"
#include "work.hpp"

namespace
{

namespace py = pybind11;
using weft_torch::Backend;
using weft_torch::GroupOptions;
using weft_torch::Lease;

using Milliseconds = std::chrono::milliseconds;

c10::intrusive_ptr<Backend>
make_backend(py::object group_comm, c10::intrusive_ptr<GroupOptions> options,
             const std::string &name)
{
    return c10::make_intrusive<Backend>(
        std::make_shared<Lease>(std::move(group_comm)), std::move(options),
        name);
}

c10::intrusive_ptr<GroupOptions> copy_options(const GroupOptions &options,
                                              const py::dict &)
{
    return c10::make_intrusive<GroupOptions>(options);
}

/* As None or as the exception that wait() raises. torch 2.11 cannot show the
 * one of its own class. */
py::object work_exception(const c10d::Work &work)
{
    std::exception_ptr error = work.exception();

    if (error == nullptr) {
        return py::none();
    }
    torch::translate_exception_to_python(error);
    return py::error_already_set().value();
}

template <class T> void bind_work(py::module_ &module, const char *name)
{
    py::class_<T, c10::intrusive_ptr<T>, c10d::Work>(module, name)
        .def("exception", [](const T &work) { return work_exception(work); });
}

/* For tests: the address of what makes streams, see Buffers; 0 for none. */
void stage_host_tensors(uintptr_t make)
{
    using weft_torch::Buffers;

    Buffers::host_streams = reinterpret_cast<Buffers::MakeStream *>(make);
}

} // namespace

PYBIND11_MODULE(WEFT_SHIM_NAME, module)
{
    py::module_ c10d = py::module_::import("torch._C._distributed_c10d");

    (void)c10d; /* the types that ours derive from must be there */
    module.doc() = "weft as a backend of torch.distributed";

    py::class_<GroupOptions, c10::intrusive_ptr<GroupOptions>,
               c10d::Backend::Options>(module, "Options")
        .def(py::init<Milliseconds>(),
             py::arg("timeout") = kBackendDefaultTimeout)
        .def_readwrite("settings", &GroupOptions::settings)
        .def_readwrite("own_timeout", &GroupOptions::own_timeout)
        .def_readwrite("blocking_wait", &GroupOptions::blocking_wait)
        .def("__deepcopy__", &copy_options, py::arg("memo"));

    py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module,
                                                                    "Backend")
        .def(py::init(&make_backend), py::arg("group_comm"), py::arg("options"),
             py::arg("name") = "weft")
        .def_property_readonly("options", &Backend::options)
        .def_property_readonly("group_comm", &Backend::group_comm)
        .def(
            "monitored_barrier",
            [](Backend &self, Milliseconds timeout, bool wait_all_ranks) {
                c10d::BarrierOptions opts;

                opts.timeout = timeout;
                self.monitoredBarrier(opts, wait_all_ranks);
            },
            py::arg("timeout"), py::arg("wait_all_ranks") = false,
            py::call_guard<py::gil_scoped_release>())
        .def("set_timeout", &Backend::setTimeout, py::arg("timeout"),
             py::call_guard<py::gil_scoped_release>())
        /* Under this name torch's _set_pg_timeout looks for it. */
        .def("_set_default_timeout", &Backend::setTimeout, py::arg("timeout"),
             py::call_guard<py::gil_scoped_release>());

    bind_work<weft_torch::Work>(module, "Work");
    bind_work<weft_torch::StagedWork>(module, "StagedWork");
    bind_work<weft_torch::WorkList>(module, "WorkList");
    module.def("_stage_host_tensors", &stage_host_tensors);
    weft_torch::bind_shared(module);
    weft_torch::mpi::bind_mpi(module);
}
