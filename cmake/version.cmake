# SPDX-License-Identifier: Apache-2.0
# The version is written down once, in include/weft/api.h.

function(weft_read_version out)
    set(header ${CMAKE_CURRENT_SOURCE_DIR}/include/weft/api.h)
    file(READ ${header} text)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
    foreach(part MAJOR MINOR PATCH)
        if(NOT text MATCHES "#define WEFT_VERSION_${part} ([0-9]+)")
            message(FATAL_ERROR "${header} does not define WEFT_VERSION_${part}")
        endif()
        list(APPEND parts ${CMAKE_MATCH_1})
    endforeach()
    list(JOIN parts . version)
    set(${out} ${version} PARENT_SCOPE)
endfunction()
