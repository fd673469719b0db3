# SPDX-License-Identifier: Apache-2.0
# libweft_cuda.so, the kernels for GPUs. libweft opens it when it is first asked
# to work on a GPU; nothing links to it, and without nvcc it is left out.
#
# nvcc is looked for in PATH, CUDA_HOME, CUDA_PATH and /usr/local/cuda.
option(WEFT_CUDA "Build the kernels for GPUs if nvcc is here" ON)

set(nvcc_found OFF)
if(WEFT_CUDA AND NOT WEFT_SANITIZE AND NOT WEFT_FUZZ)
    find_program(WEFT_NVCC nvcc
                 HINTS ENV CUDA_HOME ENV CUDA_PATH
                 PATHS /usr/local/cuda PATH_SUFFIXES bin)
    if(WEFT_NVCC)
        # In a project of its own, so that an nvcc that does not work here (or
        # not with this host compiler) leaves the rest of the build alone.
        set(ENV{CUDACXX} ${WEFT_NVCC})
        include(CheckLanguage)
        check_language(CUDA)
        if(CMAKE_CUDA_COMPILER)
            set(nvcc_found ON)
        endif()
    endif()
endif()

# Machine code for Hopper, and PTX that the driver compiles for later ones.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90)
endif()

if(nvcc_found)
    enable_language(CUDA)
    add_subdirectory(${PROJECT_SOURCE_DIR}/cuda)
elseif(WEFT_CUDA AND NOT WEFT_SANITIZE AND NOT WEFT_FUZZ)
    message(NOTICE "no nvcc that works: libweft_cuda.so is not built, so rows "
                   "are gathered and updated on CPUs only")
endif()
