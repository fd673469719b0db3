# SPDX-License-Identifier: Apache-2.0
# The target weft_cmocka: the cmocka of this system or, where there is none,
# the small stand-in of tests/support/cmocka_fallback, which has the part of
# its interface that the tests use.
find_path(CMOCKA_INCLUDE_DIR cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
mark_as_advanced(CMOCKA_INCLUDE_DIR CMOCKA_LIBRARY)

add_library(weft_cmocka INTERFACE)
if(CMOCKA_INCLUDE_DIR AND CMOCKA_LIBRARY)
    target_include_directories(weft_cmocka SYSTEM INTERFACE
                               ${CMOCKA_INCLUDE_DIR})
    target_link_libraries(weft_cmocka INTERFACE ${CMOCKA_LIBRARY})
else()
    message(NOTICE "cmocka is not installed: the C tests use the stand-in "
                   "tests/support/cmocka_fallback")
    target_include_directories(weft_cmocka INTERFACE
        ${PROJECT_SOURCE_DIR}/tests/support/cmocka_fallback)
endif()
