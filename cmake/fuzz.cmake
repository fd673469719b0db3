# SPDX-License-Identifier: Apache-2.0
# Fuzz targets. Each tests/fuzz/fuzz_NAME.c defines LLVMFuzzerTestOneInput; its
# seeds, if any, lie in tests/fuzz/corpus/NAME. With WEFT_FUZZ they run under
# libFuzzer for WEFT_FUZZ_SECONDS each; else under tests/fuzz/driver.c, which
# needs no clang and tries the seeds and a fixed number of changes to them.
set(WEFT_FUZZ_SECONDS 10 CACHE STRING "How long each fuzz target runs")

option(WEFT_FUZZ_TARGETS "Build the fuzz targets" ON)
if(NOT WEFT_FUZZ_TARGETS)
    return()
endif()

# Packets and control messages of switches come from anybody who reaches a port,
# so that their parsers run a number of times, however long that takes.
set(WEFT_FUZZ_RUNS 0 CACHE STRING
    "Executions of the targets of switches, instead of a time; 0: none")

if(WEFT_FUZZ)
    include(CheckCSourceCompiles)
    set(CMAKE_REQUIRED_FLAGS -fsanitize=fuzzer)
    check_c_source_compiles("#include <stddef.h>
        int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n);
        int LLVMFuzzerTestOneInput(const unsigned char *data, size_t n)
        { (void)data; (void)n; return 0; }" WEFT_HAVE_LIBFUZZER)
    unset(CMAKE_REQUIRED_FLAGS)
    if(NOT WEFT_HAVE_LIBFUZZER)
        message(FATAL_ERROR "WEFT_FUZZ needs a compiler that knows "
                            "-fsanitize=fuzzer; try CC=clang")
    endif()
endif()

add_library(fuzz_stage STATIC fuzz/stage.c)
weft_compile(fuzz_stage)
target_link_libraries(fuzz_stage PRIVATE wt)
file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/fuzz_*.c)
foreach(source IN LISTS fuzz_sources)
    get_filename_component(name ${source} NAME_WE)
    string(REGEX REPLACE "^fuzz_" "" short ${name})
    set(seeds ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${short})
    if(NOT EXISTS ${seeds})
        set(seeds)
    endif()

    weft_test_program(${name} ${source})
    target_link_libraries(${name} PRIVATE fuzz_stage)
    if(WEFT_FUZZ)
        # What libFuzzer finds goes into the build tree, never among the seeds.
        set(found ${CMAKE_CURRENT_BINARY_DIR}/corpus/${short})
        file(MAKE_DIRECTORY ${found})
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set(extent -max_total_time=${WEFT_FUZZ_SECONDS})
        if(short MATCHES "^agg" AND WEFT_FUZZ_RUNS GREATER 0)
            set(extent -runs=${WEFT_FUZZ_RUNS})
        endif()
        add_test(NAME ${name} COMMAND $<TARGET_FILE:${name}> ${extent} -timeout=10
            -artifact_prefix=${CMAKE_CURRENT_BINARY_DIR}/${short}-
            ${found} ${seeds})
    else()
        target_sources(${name} PRIVATE fuzz/driver.c)
        add_test(NAME ${name} COMMAND ${weft_test_wrapper}
                                      $<TARGET_FILE:${name}> ${seeds})
    endif()
    math(EXPR timeout "(${WEFT_FUZZ_SECONDS} + 60) * ${patience}")
    if(short MATCHES "^agg" AND WEFT_FUZZ_RUNS GREATER 0)
        set(timeout 3600)
    endif()
    set_tests_properties(${name} PROPERTIES
        LABELS fuzz ENVIRONMENT "${weft_test_environment}" TIMEOUT ${timeout} SKIP_RETURN_CODE 77)
endforeach()
