# SPDX-License-Identifier: Apache-2.0
# How every C file of the project is compiled.
#
#   weft_compile(target)   language, warnings and sanitizer of one target
#
# There is no -march here: the library runs on any CPU of its architecture, and
# the few files that use more are chosen at run time (src/coll/kernel).
find_package(Threads REQUIRED)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(weft_warnings -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes
    -Wmissing-prototypes -Wold-style-definition -Wpointer-arith
    -Wwrite-strings -Wundef -Wvla -Wformat=2)
if(WEFT_WERROR)
    list(APPEND weft_warnings -Werror)
endif()

set(weft_sanitize)
set(weft_sanitize_defines)
if(WEFT_SANITIZE STREQUAL "address")
    set(weft_sanitize -fsanitize=address,undefined
        -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(WEFT_SANITIZE STREQUAL "thread")
    set(weft_sanitize -fsanitize=thread -fno-omit-frame-pointer)
    # Ranks that run as threads share each mapping, so that two of them touch
    # one address and the sanitizer can relate the accesses.
    set(weft_sanitize_defines WF_SHARE_MAPS=1)
    if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
        # GCC warns that it does not model fences; a fence that matters shows
        # as a report in the tests, so the warning adds nothing.
        list(APPEND weft_warnings -Wno-tsan)
    endif()
elseif(WEFT_SANITIZE)
    message(FATAL_ERROR "WEFT_SANITIZE is '${WEFT_SANITIZE}'; "
                        "it can be address, thread or empty")
endif()

if(WEFT_FUZZ)
    # libFuzzer follows which branches of the library an input reaches.
    list(APPEND weft_sanitize -fsanitize=fuzzer-no-link)
endif()

if(WEFT_SANITIZE)
    # What the tests take is mostly waiting; without loops that are unrolled and
    # types of variables a file compiles in half the time, and the kernels in a
    # quarter. Reports still have their lines.
    list(APPEND weft_sanitize -O1 -g1)
endif()

function(weft_compile target)
    # An empty value, so that a file that also says "#define _GNU_SOURCE" is
    # not a redefinition.
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE=
                               ${weft_sanitize_defines})
    target_compile_options(${target} PRIVATE ${weft_warnings} ${weft_sanitize})
    if(WEFT_SANITIZE)
        # The sanitized tests are where an assert should speak up.
        target_compile_options(${target} PRIVATE -UNDEBUG)
    endif()
    target_link_options(${target} PRIVATE ${weft_sanitize})
endfunction()
