# SPDX-License-Identifier: Apache-2.0
# How a test is run:
#
#   weft_test_environment   the sanitizers' options: every finding is an error,
#                           with the stack that led to it
#   weft_test_wrapper       what stands before the command: nothing or, for
#                           ThreadSanitizer on kernels that randomize addresses
#                           further than it knows, "setarch -R"
set(weft_test_environment
    ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1
    UBSAN_OPTIONS=print_stacktrace=1
    TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)
set(weft_test_wrapper)

if(WEFT_SANITIZE STREQUAL "thread")
    set(probe ${PROJECT_BINARY_DIR}/tsan_probe)
    file(WRITE ${probe}.c "int main(void) { return 0; }\n")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -fsanitize=thread ${probe}.c
                            -o ${probe} RESULT_VARIABLE failed ERROR_QUIET)
    if(failed)
        message(FATAL_ERROR "${CMAKE_C_COMPILER} cannot link with "
                            "-fsanitize=thread; install libtsan")
    endif()
    # Addresses are random, so one good start proves little.
    execute_process(COMMAND sh -c
        "for i in 1 2 3 4 5 6 7 8; do '${probe}' || exit 1; done"
        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(failed)
        find_program(SETARCH setarch REQUIRED)
        set(weft_test_wrapper ${SETARCH} -R)
        execute_process(COMMAND ${weft_test_wrapper} ${probe}
                        RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
        if(failed)
            message(FATAL_ERROR "ThreadSanitizer does not start on this "
                "kernel, with setarch -R neither; lower vm.mmap_rnd_bits")
        endif()
        message(NOTICE "ThreadSanitizer needs setarch -R on this kernel")
    endif()
endif()
