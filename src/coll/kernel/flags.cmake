# SPDX-License-Identifier: Apache-2.0
# Compile options of the reduce kernels: each level of the CPU is one file that
# is compiled for it. Include this from the CMakeLists.txt that makes the
# target, since source properties are seen in one directory only.

# A product and a sum must not be fused into one rounding where the CPU happens
# to have an instruction for it: all levels give the same bits. For the same
# reason FMA is not asked for where it is not part of the level. The loops over
# the vectors of a block have to be unrolled to stay in registers, save under a
# sanitizer, where that takes half a minute a file and speed is no matter.
set(WF_KERNEL_OPTIONS
  -ffp-contract=off
  $<$<NOT:$<OR:$<CONFIG:Debug>,$<BOOL:${WEFT_SANITIZE}>>>:-O3>)

set_source_files_properties(
  ${CMAKE_CURRENT_LIST_DIR}/kernel_plain.c
  PROPERTIES COMPILE_OPTIONS "${WF_KERNEL_OPTIONS}")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/kernel_avx2.c
    PROPERTIES COMPILE_OPTIONS "${WF_KERNEL_OPTIONS};-mavx2;-mf16c")
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/kernel_avx512.c
    PROPERTIES COMPILE_OPTIONS
    "${WF_KERNEL_OPTIONS};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq")
endif()
