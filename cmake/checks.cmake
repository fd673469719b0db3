# SPDX-License-Identifier: Apache-2.0
# Checks of the source and of the library itself, under the label "check".
find_package(Python 3.11 QUIET COMPONENTS Interpreter)
if(NOT Python_FOUND OR WEFT_SANITIZE OR WEFT_FUZZ)
    return()
endif()

find_program(CHECK_CXX NAMES c++ g++ clang++)
mark_as_advanced(CHECK_CXX)
add_test(NAME check_includes
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/unit/check_includes.py
            --root ${PROJECT_SOURCE_DIR} --cc ${CMAKE_C_COMPILER}
            --cxx ${CHECK_CXX} --nm ${CMAKE_NM}
            --objects $<TARGET_OBJECTS:weft_objects>
    COMMAND_EXPAND_LISTS)
add_test(NAME check_symbols
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/unit/check_symbols.py
            --library $<TARGET_FILE:weft> --nm ${CMAKE_NM}
            --list ${CMAKE_CURRENT_SOURCE_DIR}/unit/symbols.txt)
add_test(NAME check_layouts
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/unit/check_layouts.py
            --root ${PROJECT_SOURCE_DIR} --cc ${CMAKE_C_COMPILER})
add_test(NAME check_promises
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/unit/check_promises.py
            --root ${PROJECT_SOURCE_DIR})
add_test(NAME check_words
    COMMAND ${Python_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/unit/check_words.py
            --root ${PROJECT_SOURCE_DIR})
set_tests_properties(check_includes check_symbols check_layouts check_promises
    check_words PROPERTIES LABELS check TIMEOUT 120 SKIP_RETURN_CODE 77)
