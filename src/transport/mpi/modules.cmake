# SPDX-License-Identifier: Apache-2.0
# libweft_mpi_openmpi.so and libweft_mpi_mpich.so, the transport over MPI, once
# for each binary interface of MPI. libweft opens the one that fits when a job
# needs it; nothing links to them, and without the headers they are left out.
option(WEFT_MPI "Build the transport over MPI for each MPI that is here" ON)

file(GLOB weft_mpi_sources CONFIGURE_DEPENDS
     ${CMAKE_CURRENT_LIST_DIR}/*.c)
set(weft_mpi_modules "")

# What the compiler wrapper of this MPI would compile and link with.
function(weft_mpi_flags wrapper kind out)
    execute_process(COMMAND ${wrapper} ${ARGN}
        OUTPUT_VARIABLE line ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    separate_arguments(words UNIX_COMMAND "${line}")
    if(kind STREQUAL "include")
        list(FILTER words INCLUDE REGEX "^-I")
        list(TRANSFORM words REPLACE "^-I" "")
    else()
        list(FILTER words INCLUDE REGEX "^-[lL]")
    endif()
    set(${out} "${words}" PARENT_SCOPE)
endfunction()

# weft_mpi_module(name wrapper compile-option link-option)
function(weft_mpi_module name wrapper compile link)
    find_program(WEFT_MPICC_${name} ${wrapper})
    if(NOT WEFT_MPICC_${name})
        message(STATUS "no ${wrapper}: libweft_mpi_${name}.so is not built")
        return()
    endif()
    weft_mpi_flags(${WEFT_MPICC_${name}} include includes ${compile})
    weft_mpi_flags(${WEFT_MPICC_${name}} link libraries ${link})
    set(target weft_mpi_${name})
    add_library(${target} MODULE ${weft_mpi_sources})
    weft_compile(${target})
    target_compile_definitions(${target} PRIVATE WF_MODULE)
    # Its headers are not held to our warnings.
    target_include_directories(${target} SYSTEM PRIVATE ${includes})
    target_include_directories(${target} PRIVATE
                               ${PROJECT_SOURCE_DIR}/src
                               ${PROJECT_SOURCE_DIR}/include)
    target_link_libraries(${target} PRIVATE weft ${libraries}
                          Threads::Threads)
    set_target_properties(${target} PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
        INSTALL_RPATH "$ORIGIN")
    # It lies beside libweft, wherever that goes.
    install(TARGETS ${target} LIBRARY DESTINATION weft COMPONENT python
            EXCLUDE_FROM_ALL)
    if(NOT SKBUILD)
        install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    endif()
    # For programs that call this MPI themselves.
    set(weft_mpi_includes_${name} "${includes}" CACHE INTERNAL "")
    set(weft_mpi_libraries_${name} "${libraries}" CACHE INTERNAL "")
    set(weft_mpi_modules ${weft_mpi_modules} ${target} PARENT_SCOPE)
endfunction()

if(WEFT_MPI AND NOT WEFT_FUZZ)
    weft_mpi_module(openmpi mpicc.openmpi --showme:compile --showme:link)
    weft_mpi_module(mpich mpicc.mpich -compile_info -link_info)
endif()
