# SPDX-License-Identifier: Apache-2.0
# Compile options of the row kernels: each level of the CPU is one file that is
# compiled for it. Include this from the CMakeLists.txt that makes the target.

# A conversion and a sum are not fused into one rounding, so that all levels
# give the same bits.
set(WF_ROW_KERNEL_OPTIONS
  -ffp-contract=off
  $<$<NOT:$<CONFIG:Debug>>:-O3>)

set_source_files_properties(
  ${CMAKE_CURRENT_LIST_DIR}/rows_plain.c
  PROPERTIES COMPILE_OPTIONS "${WF_ROW_KERNEL_OPTIONS}")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  # Asking for a line in order to write it is a no-op on CPUs that cannot.
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/rows_avx2.c
    PROPERTIES COMPILE_OPTIONS
    "${WF_ROW_KERNEL_OPTIONS};-mavx2;-mprfchw")
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/rows_avx512.c
    PROPERTIES COMPILE_OPTIONS
    "${WF_ROW_KERNEL_OPTIONS};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprfchw")
endif()
