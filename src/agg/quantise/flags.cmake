# SPDX-License-Identifier: Apache-2.0
# Compile options of the loops of quantisation: each level of the CPU is one
# file that is compiled for it, as in coll/kernel/flags.cmake. Include this from
# the CMakeLists.txt that makes the target.

# Comparisons become vectors only if they may not trap.
set(WF_QUANTISE_OPTIONS
  -ffp-contract=off
  -fno-trapping-math
  $<$<NOT:$<OR:$<CONFIG:Debug>,$<BOOL:${WEFT_SANITIZE}>>>:-O3>)

set_source_files_properties(
  ${CMAKE_CURRENT_LIST_DIR}/quantise_plain.c
  PROPERTIES COMPILE_OPTIONS "${WF_QUANTISE_OPTIONS}")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/quantise_avx2.c
    PROPERTIES COMPILE_OPTIONS "${WF_QUANTISE_OPTIONS};-mavx2")
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/quantise_avx512.c
    PROPERTIES COMPILE_OPTIONS
    "${WF_QUANTISE_OPTIONS};-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mprefer-vector-width=512")
endif()
